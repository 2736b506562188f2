//! The invariants of docs/architecture.md that cargo's own metadata can show, each an absence; the licences that
//! deny.toml allows; and docs/dependencies.md, which must name every dependency.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const STEPS: [&str; 7] =
    ["kbt-microbench", "kbt-trace", "kbt-sass", "kbt-quant", "kbt-split", "kbt-validate", "kbt-roofline"];
const GPU_FREE: [&str; 8] = [
    "kbt-evidence",
    "kbt-device",
    "kbt-ptx",
    "kbt-tensor",
    "kbt-sass",
    "kbt-quant",
    "kbt-validate",
    "kbt-roofline",
];

/// What cargo resolved for this platform.
struct Workspace {
    packages: Vec<Package>,
    /// Package id to the ids of its normal and build dependencies.
    edges: BTreeMap<String, Vec<String>>,
}

struct Package {
    id: String,
    name: String,
    license: Option<String>,
    member: bool,
    /// Names of its dependencies of every kind as its manifest states them, optional ones included.
    declared: BTreeSet<String>,
    /// The same without optional and dev-dependencies.
    required: BTreeSet<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Workspace {
    fn read() -> Self {
        let run = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).current_dir(root()).output().expect("it starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("it prints UTF-8")
        };
        let version = run("rustc", &["-vV"]);
        let host = version.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let printed = run(&cargo, &["metadata", "--format-version", "1", "--filter-platform", host]);
        let metadata: Value = serde_json::from_str(&printed).expect("cargo prints JSON");
        let members: BTreeSet<_> = list(&metadata["workspace_members"]).iter().map(text).collect();
        let names = |package: &Value, keep: &dyn Fn(&Value) -> bool| {
            list(&package["dependencies"]).iter().filter(|d| keep(d)).map(|d| text(&d["name"])).collect()
        };
        let packages = list(&metadata["packages"]).iter().map(|package| Package {
            id: text(&package["id"]),
            name: text(&package["name"]),
            license: package["license"].as_str().map(str::to_owned),
            member: members.contains(&text(&package["id"])),
            declared: names(package, &|_| true),
            required: names(package, &|d| d["optional"] != true && d["kind"] != "dev"),
        });
        let edges = list(&metadata["resolve"]["nodes"]).iter().map(|node| {
            let linked = list(&node["deps"])
                .iter()
                .filter(|dep| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev"));
            (text(&node["id"]), linked.map(|dep| text(&dep["pkg"])).collect())
        });
        Self { packages: packages.collect(), edges: edges.collect() }
    }

    fn package(&self, name: &str) -> &Package {
        self.packages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no package {name}"))
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|p| p.member)
    }

    /// The names of everything that a package is built from.
    fn tree(&self, name: &str) -> BTreeSet<&str> {
        let mut open = vec![self.package(name).id.as_str()];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(self.edges.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        self.packages.iter().filter(|p| seen.contains(p.id.as_str())).map(|p| p.name.as_str()).collect()
    }

    /// The workspace members that a member always brings, through others too.
    fn required_members(&self, name: &str) -> BTreeSet<&str> {
        let mut open = vec![name];
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            for member in self.members().filter(|m| self.package(name).required.contains(&m.name)) {
                if seen.insert(member.name.as_str()) {
                    open.push(&member.name);
                }
            }
        }
        seen
    }

    /// The members that state a dependency on `name` or on a crate of its family (`name-…`, `name_…`).
    fn users(&self, name: &str) -> Vec<&str> {
        let users = self.members().filter(|m| m.declared.iter().any(|d| family(d, name)));
        users.map(|m| m.name.as_str()).collect()
    }
}

fn family(candidate: &str, name: &str) -> bool {
    candidate.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn a_step_crate_depends_on_no_other_step_crate() {
    let workspace = Workspace::read();
    for step in STEPS {
        for other in STEPS.iter().filter(|other| **other != step) {
            // It must verify its own machine code.
            let allowed = (step, *other) == ("kbt-microbench", "kbt-sass");
            let declared = workspace.package(step).declared.contains(*other);
            assert!(allowed || !declared, "{step} states a dependency on {other}");
            assert!(allowed || !workspace.required_members(step).contains(other), "{step} brings {other}");
        }
    }
}

#[test]
fn gpu_free_crates_know_no_gpu_and_no_command_line() {
    let workspace = Workspace::read();
    for name in GPU_FREE {
        let tree = workspace.tree(name);
        for banned in ["cudarc", "polars", "plotters", "clap"] {
            let found = tree.iter().find(|package| family(package, banned));
            assert!(found.is_none(), "{name} is built from {found:?}");
        }
    }
}

#[test]
fn heavy_crates_are_each_in_one_place() {
    let workspace = Workspace::read();
    for (name, places) in [
        ("cudarc", &["kbt-gpu"][..]),
        ("polars", &["kbt-frame"]),
        ("plotters", &["kbt-report"]),
        ("clap", &["kbt", "kbt-frame", "xtask"]),
        ("bindgen", &["kbt-bindings"]),
    ] {
        let stray: Vec<_> = workspace.users(name).into_iter().filter(|user| !places.contains(user)).collect();
        assert!(stray.is_empty(), "{name} belongs to {places:?} and is used by {stray:?}");
    }
    let tree = workspace.tree("kbt");
    assert!(!tree.iter().any(|package| family(package, "polars")), "kbt links polars");
}

#[test]
fn xtask_sequences_and_links_no_step() {
    let workspace = Workspace::read();
    let tree = workspace.tree("xtask");
    let own: BTreeSet<_> =
        workspace.members().map(|m| m.name.as_str()).filter(|name| tree.contains(name)).collect();
    assert_eq!(own, BTreeSet::from(["kbt-device", "kbt-evidence", "kbt-toolchain", "xtask"]));
}

#[test]
fn yaml_goes_through_the_maintained_fork() {
    let workspace = Workspace::read();
    for package in &workspace.packages {
        let banned = ["serde_yaml", "serde_yml", "libyml", "yaml-rust", "unsafe-libyaml"];
        assert!(!banned.contains(&package.name.as_str()), "{} is in the tree", package.name);
    }
}

#[test]
fn every_licence_is_allowed() {
    let workspace = Workspace::read();
    let deny = read("deny.toml");
    let (_, allow) = deny.split_once("\nallow = [").expect("deny.toml allows licences");
    let (allow, _) = allow.split_once(']').expect("the list ends");
    let allowed: BTreeSet<_> = allow.split('"').skip(1).step_by(2).collect();
    for package in &workspace.packages {
        let license = package.license.as_deref().unwrap_or("no licence stated");
        assert!(permits(license, &allowed), "{}: `{license}` is not allowed by deny.toml", package.name);
    }
}

/// Whether an SPDX expression can be met: one alternative of which every part is allowed.
fn permits(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    // The registry's old form of OR.
    let expression = expression.replace('/', " OR ");
    let mut depth = 0_i32;
    let split = |word: &str| -> Vec<String> {
        let mut parts = vec![String::new()];
        for token in expression.replace('(', " ( ").replace(')', " ) ").split_whitespace() {
            depth += i32::from(token == "(") - i32::from(token == ")");
            if depth == 0 && token == word {
                parts.push(String::new());
            } else if let Some(last) = parts.last_mut() {
                *last = format!("{last} {token}").trim().to_owned();
            }
        }
        parts
    };
    let mut split = split;
    let alternatives = split("OR");
    if alternatives.len() > 1 {
        return alternatives.iter().any(|part| permits(part, allowed));
    }
    let parts = split("AND");
    if parts.len() > 1 {
        return parts.iter().all(|part| permits(part, allowed));
    }
    let single = expression.trim();
    single
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
        .map_or_else(|| allowed.contains(single), |inner| permits(inner, allowed))
}

#[test]
fn licence_expressions_are_read() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Zlib"]);
    for (expression, expect) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("(GPL-3.0 OR LGPL-3.0) AND MIT", false),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(permits(expression, &allowed), expect, "{expression}");
    }
}

#[test]
fn every_dependency_is_explained() {
    let workspace = Workspace::read();
    let members: BTreeSet<_> = workspace.members().map(|m| m.name.as_str()).collect();
    let used: BTreeSet<_> = workspace.members().flat_map(|m| &m.declared).map(String::as_str).collect();
    let used: BTreeSet<_> = used.difference(&members).copied().collect();
    let page = read("docs/dependencies.md");
    let explained: BTreeSet<_> =
        page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let missing: Vec<_> = used.difference(&explained).collect();
    assert!(missing.is_empty(), "docs/dependencies.md does not explain {missing:?}");
    let gone: Vec<_> = explained.difference(&used).collect();
    assert!(gone.is_empty(), "docs/dependencies.md explains {gone:?}, which nothing uses");
    for row in page.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let license = workspace.package(name).license.as_deref();
        assert_eq!(Some(cells[3]), license, "licence of {name}");
    }
}
