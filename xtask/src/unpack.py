"""Unpacks one CUDA wheel into a toolkit folder: WHEEL FOLDER STAMP PIN SHA256...

The wheel's digest must be one of those given, else the exit code is 3. nvidia/cu13/ becomes the folder itself. The stamp (the pin, then
every file) is written last, so that a killed run is seen as incomplete; an older pin's files are removed first.
"""

import hashlib
import os
import sys
import zipfile

wheel, folder, stamp, pin, *digests = sys.argv[1:]

with open(wheel, "rb") as file:
    digest = hashlib.sha256(file.read()).hexdigest()
if digest not in digests:
    print(f"sha256 {digest} is not the pinned one", file=sys.stderr)
    sys.exit(3)


def place(path, data, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = path + ".part"
    with open(part, "wb") as file:
        file.write(data)
    os.chmod(part, mode)
    os.replace(part, path)


if os.path.exists(stamp):
    with open(stamp, encoding="utf-8") as file:
        old = file.read().splitlines()[1:]
    os.remove(stamp)
    for name in old:
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))

files = []
with zipfile.ZipFile(wheel) as archive:
    for info in archive.infolist():
        name = info.filename
        if info.is_dir() or name.endswith("/__init__.py"):
            continue
        name = name[len("nvidia/cu13/") :] if name.startswith("nvidia/cu13/") else "wheels/" + name
        mode = (info.external_attr >> 16) & 0o777 or 0o644
        place(os.path.join(folder, name), archive.read(info), mode)
        files.append(name)
place(stamp, "\n".join([pin, *files, ""]).encode(), 0o644)
