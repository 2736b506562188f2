//! The host's C++ compiler, as the cc crate finds it: CXX where it is set, else the platform's own.

use std::process::Command;

pub(crate) fn command() -> Command {
    // The tests run on the machine that builds them.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cc::Build::new()
        .cpp(true)
        .host(&host)
        .target(&host)
        .opt_level(2)
        .cargo_metadata(false)
        .get_compiler()
        .to_command()
}
