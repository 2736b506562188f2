//! Several processes set up at once, each timed alone in its turn.
//!
//! A process whose kernel takes half a millisecond spends half a second on CUDA itself, its inputs and its machine
//! code. Where the target file says that its program knows turns (`limits.set_up_at_once`), the processes of a
//! comparison are started together. Each prints `kbt-ready` when nothing is left but its warm-up and its launches, and
//! waits for a line on standard input; it gets it in the order of the comparison, after its rest, when every other
//! process is waiting too. When its times are printed it prints `kbt-done` and waits for the end of standard input, so
//! that nothing is freed while another is timed. A process remains one sample with a warm-up of its own; beside it
//! there are idle contexts on the GPU, and nothing else.
//!
//! The alternative, many samples from one process, would count what they share (where its memory lies) as no noise at
//! all, and give intervals that are too narrow.

use crate::launch::{Launch, LaunchRequest, Launcher, Status};
use crate::process::ProcessLauncher;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// The variable that tells a process to wait for its turn.
pub(crate) const VARIABLE: &str = "KBT_TURN";

/// A line by which a process tells where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `kbt-ready`: set up, and waiting.
    Ready,
    /// `kbt-done`: timed, and waiting to be let go.
    Done,
}

impl Mark {
    pub(crate) fn of(line: &str) -> Option<Self> {
        match line {
            "kbt-ready" => Some(Self::Ready),
            "kbt-done" => Some(Self::Done),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    SettingUp,
    /// Ready; its time limit does not run.
    Waiting,
    Running,
    /// Timed; its time limit does not run.
    Done,
    Released,
    /// To be killed: it ran when it had no turn, or is not needed any more.
    Cancelled,
}

enum Event {
    Started(ChildStdin),
    Marked,
    Ended { ok: bool },
}

/// What a process, those who watch it, and those who give turns know of its turn.
#[derive(Debug)]
pub(crate) struct Gate {
    place: usize,
    phase: Mutex<Phase>,
    events: mpsc::Sender<(usize, Event)>,
}

impl Gate {
    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves on unless cancelled.
    fn enter(&self, next: Phase) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if *phase != Phase::Cancelled {
            *phase = next;
        }
    }

    fn cancel(&self) {
        self.enter(Phase::Cancelled);
    }

    /// A line was read. `timed` is whether a time was read before it.
    pub(crate) fn mark(&self, mark: Mark, timed: bool) {
        self.enter(match (mark, self.phase()) {
            (Mark::Ready, Phase::SettingUp) if !timed => Phase::Waiting,
            (Mark::Done, Phase::Running) => Phase::Done,
            // Said twice, it changes nothing.
            (_, phase @ (Phase::Running | Phase::Done | Phase::Released)) => phase,
            _ => Phase::Cancelled,
        });
        self.tell(Event::Marked);
    }

    pub(crate) fn started(&self, input: ChildStdin) {
        self.tell(Event::Started(input));
    }

    fn tell(&self, event: Event) {
        // Nobody listens once every turn is over.
        let _ = self.events.send((self.place, event));
    }

    /// Whether the time limit runs.
    pub(crate) fn is_at_work(&self) -> bool {
        !matches!(self.phase(), Phase::Waiting | Phase::Done)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.phase() == Phase::Cancelled
    }

    /// Whether it was given its turn.
    pub(crate) fn had_turn(&self) -> bool {
        matches!(self.phase(), Phase::Running | Phase::Done | Phase::Released)
    }
}

/// Says that a process has ended, come what may.
struct Ending<'g> {
    gate: &'g Gate,
    ok: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.gate.tell(Event::Ended { ok: self.ok });
    }
}

/// Who has which place, as far as the events go.
struct Turns<'g> {
    gates: &'g [Arc<Gate>],
    events: mpsc::Receiver<(usize, Event)>,
    inputs: Vec<Option<ChildStdin>>,
    /// Whether each has ended, and well.
    ended: Vec<Option<bool>>,
}

impl Turns<'_> {
    fn wait_until(&mut self, met: impl Fn(&Self) -> bool) {
        while !met(self) {
            let Ok((place, event)) = self.events.recv() else { return };
            match event {
                Event::Started(input) => self.inputs[place] = Some(input),
                Event::Marked => {}
                Event::Ended { ok } => self.ended[place] = Some(ok),
            }
        }
    }

    fn is_set_up(&self, place: usize) -> bool {
        // It may say that it is ready before the event that brings its standard input was taken.
        let is_waiting = self.inputs[place].is_some() && self.gates[place].phase() == Phase::Waiting;
        is_waiting || self.ended[place].is_some()
    }

    /// Lets one process be timed; false where it failed.
    fn take(&mut self, place: usize) -> bool {
        let gate = &self.gates[place];
        let mut told = true;
        if self.ended[place].is_none() {
            gate.enter(Phase::Running);
            if let Some(input) = &mut self.inputs[place] {
                told = input.write_all(b"go\n").and_then(|()| input.flush()).is_ok();
            }
            self.wait_until(|t| t.ended[place].is_some() || t.gates[place].phase() != Phase::Running);
        }
        // Whoever did not wait has not read what it was to wait for, or was gone before it was written.
        let waited = told && self.inputs[place].as_ref().is_none_or(|input| unread_bytes(input) == 0);
        if !waited {
            gate.cancel();
        }
        waited && self.ended[place].unwrap_or_else(|| gate.phase() == Phase::Done)
    }
}

/// What a process has not read of its standard input.
fn unread_bytes(input: &ChildStdin) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the call writes one integer to the place given. Where it cannot say, it writes
    // none.
    unsafe { libc::ioctl(input.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    bytes
}

/// Fresh processes, set up together and timed in their order, `rest_s` before each; up to the first that fails.
///
/// The first request runs once more ahead of all, and its time is dropped: after so many processes were set up the chip
/// is not as it is between two turns, and the side that always comes first would pay for it.
pub(crate) fn launch_behind_a_lead(
    launcher: &ProcessLauncher<'_>,
    requests: &[&LaunchRequest],
    rest_s: f64,
) -> Vec<Launch> {
    let Some(first) = requests.first() else { return Vec::new() };
    let lead = LaunchRequest { out: None, dump: None, trace: None, ..(*first).clone() };
    let all: Vec<&LaunchRequest> = std::iter::once(&lead).chain(requests.iter().copied()).collect();
    let mut launches = launch_in_turn(launcher, &all, rest_s);
    // Where the lead fails, that is what the first request comes to.
    if launches.first().is_some_and(Launch::is_ok) {
        launches.remove(0);
    }
    launches
}

fn launch_in_turn(launcher: &ProcessLauncher<'_>, requests: &[&LaunchRequest], rest_s: f64) -> Vec<Launch> {
    let (sender, events) = mpsc::channel();
    let gate = |place| Arc::new(Gate { place, phase: Mutex::new(Phase::SettingUp), events: sender.clone() });
    let gates: Vec<Arc<Gate>> = (0..requests.len()).map(gate).collect();
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(gates.len());
        for (request, gate) in requests.iter().zip(&gates) {
            running.push(scope.spawn(move || {
                let mut ending = Ending { gate, ok: false };
                let launch = launcher.run(request, Some(gate));
                ending.ok = launch.is_ok();
                launch
            }));
        }
        let inputs = requests.iter().map(|_| None).collect();
        let mut turns = Turns { gates: &gates, events, inputs, ended: vec![None; gates.len()] };
        turns.wait_until(|t| (0..t.gates.len()).all(|place| t.is_set_up(place)));
        let mut well = 0;
        while well < gates.len() {
            launcher.cool_down(rest_s);
            if !turns.take(well) {
                break;
            }
            well += 1;
        }
        for (place, (gate, input)) in gates.iter().zip(&mut turns.inputs).enumerate() {
            if place <= well {
                gate.enter(Phase::Released);
                // The end of standard input lets it go.
                *input = None;
            } else {
                // Whoever is not needed stays at the gate until it is killed.
                gate.cancel();
            }
        }
        let ended =
            running.into_iter().map(|run| run.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        let mut launches: Vec<Launch> = ended.collect();
        for (launch, gate) in launches.iter_mut().zip(&gates) {
            // It may have ended before that was known.
            if launch.is_ok() && gate.is_cancelled() {
                launch.status = Status::OutOfTurn;
            }
        }
        launches.truncate(well + 1);
        launches
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn who_was_gone_before_its_turn_was_written_has_not_waited() {
        let mut gone = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let input = gone.stdin.take();
        gone.wait().unwrap();
        let (sender, events) = mpsc::channel();
        let gate = Gate { place: 0, phase: Mutex::new(Phase::Waiting), events: sender };
        // It ended well, and that is not known yet.
        gate.tell(Event::Ended { ok: true });
        let gates = [Arc::new(gate)];
        let mut turns = Turns { gates: &gates, events, inputs: vec![input], ended: vec![None] };
        assert!(!turns.take(0));
        assert!(gates[0].is_cancelled());
    }
}
