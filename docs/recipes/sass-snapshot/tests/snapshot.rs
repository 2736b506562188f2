//! One snapshot a kernel, target and compiler version.

/// A compiler may schedule as it likes, so each version has its own snapshot. A version that has none fails the
/// test, and `INSTA_UPDATE=always cargo test` (or `cargo insta accept`) takes it in, for review in the diff.
fn check(kernel: &str, target: &str, ptxas: &str) {
    let path = format!("{}/listings/{kernel}.{target}.sass", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let listing = kbt_sass::parse(&bytes).unwrap_or_else(|e| panic!("{path}: {e}"));
    insta::with_settings!({ snapshot_suffix => format!("{target}-ptxas-{ptxas}") }, {
        insta::assert_yaml_snapshot!(kernel, sass_snapshot::summary(&listing));
    });
}

#[test]
fn softmax_for_hopper() {
    check("softmax", "sm_90a", "13.0.88");
}
