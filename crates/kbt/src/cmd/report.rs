use crate::output::{Failure, Outcome};

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Outcome {
    Err(Failure::input("being written"))
}
