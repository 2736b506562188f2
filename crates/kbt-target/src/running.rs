//! What the system says of the processes that run: the memory of one with all that it started, and those that a sweep
//! left behind.

use crate::environment::CACHES;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process as the system lists it.
struct Listed {
    parent: u32,
    name: String,
    pages: u64,
}

/// Every process, by its number; none where there is no /proc.
fn listed() -> BTreeMap<u32, Listed> {
    let mut all = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return all };
    for process in processes.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        // The command's name, in brackets, may hold spaces and brackets: fields are counted after it.
        let Some((start, fields)) = stat.rsplit_once(") ") else { continue };
        let name = start.split_once('(').map_or("", |s| s.1).to_owned();
        let mut fields = fields.split(' ');
        let parent = fields.nth(1).and_then(|p| p.parse().ok());
        let pages = fields.nth(19).and_then(|p| p.parse().ok());
        if let (Some(parent), Some(pages)) = (parent, pages) {
            all.insert(id, Listed { parent, name, pages });
        }
    }
    all
}

/// The parents of a process, the nearest first.
fn parents(all: &BTreeMap<u32, Listed>, id: u32) -> impl Iterator<Item = u32> {
    // The list is not of one moment: a number used twice must not lead round in circles.
    std::iter::successors(all.get(&id).map(|l| l.parent), |id| all.get(id).map(|l| l.parent))
        .take_while(|id| *id > 0)
        .take(64)
}

/// Resident memory of all that a guard watches; elsewhere than on Linux nobody says. The address space is no measure:
/// CUDA reserves terabytes.
pub(crate) fn memory_bytes_under(guard: u32) -> u64 {
    let all = listed();
    // SAFETY: `sysconf` takes an integer and touches no memory of ours.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let under = all.iter().filter(|(id, _)| parents(&all, **id).any(|p| p == guard));
    under.fold(0, |sum, (_, l)| sum.saturating_add(l.pages.saturating_mul(page)))
}

/// Processes of a sweep's directory that nobody watches any more, as `number (command)`: their environment says that
/// they were started there, and no guard that kbt holds is above them. One that belongs to another user is not seen.
#[must_use]
pub fn left_behind(dir: &Path) -> Vec<String> {
    let all = listed();
    let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    // A directory has many names; what stands in an environment may be another one, or of a file that is gone.
    let is_there = |value: &[u8]| {
        let path = Path::new(OsStr::from_bytes(value));
        let found = || path.ancestors().find_map(|p| fs::canonicalize(p).ok());
        path.starts_with(dir) || path.is_absolute() && found().is_some_and(|p| p.starts_with(&real))
    };
    let started_there = |id: u32| {
        let Ok(environment) = fs::read(format!("/proc/{id}/environ")) else { return false };
        let variables = || environment.split(|b| *b == 0);
        // Every target's process has this one, and a shell in which someone looks around has not.
        let is_target = variables().any(|v| v.starts_with(b"KBT_INPUT_SET="));
        is_target
            && variables().any(|variable| {
                let mut parts = variable.splitn(2, |b| *b == b'=');
                let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return false };
                let names_a_place = name.starts_with(b"KBT_") || CACHES.iter().any(|c| c.as_bytes() == name);
                names_a_place && is_there(value)
            })
    };
    let is_watched = |id: u32| parents(&all, id).any(|p| is_held_guard(&all, p));
    let own = std::process::id();
    let own_parents: Vec<u32> = parents(&all, own).collect();
    let mut left = Vec::new();
    for (&id, process) in &all {
        if id != own && !own_parents.contains(&id) && started_there(id) && !is_watched(id) {
            left.push(format!("{id} ({})", process.name));
        }
    }
    left
}

/// Whether a process is a guard and its parent the kbt that it was made from: both run the same program.
#[cfg(target_os = "linux")]
fn is_held_guard(all: &BTreeMap<u32, Listed>, id: u32) -> bool {
    let Some(process) = all.get(&id).filter(|l| l.name.as_bytes() == crate::guard::NAME.to_bytes()) else {
        return false;
    };
    let program = |id: u32| fs::read_link(format!("/proc/{id}/exe")).ok();
    program(id).is_some_and(|p| Some(p) == program(process.parent))
}

#[cfg(not(target_os = "linux"))]
fn is_held_guard(_all: &BTreeMap<u32, Listed>, _id: u32) -> bool {
    false
}
