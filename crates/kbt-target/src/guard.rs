//! A process and everything that it starts, which end together: with it, or with kbt, however kbt ends.
//!
//! On Linux a guard stands between kbt and the process. It is a fork of kbt that never runs anything else: it waits,
//! asleep, until the process has ended or until the pipe whose other end kbt holds is closed, which the system does for
//! a kbt that was killed too. Then it kills what is left and ends as the process did. Descendants that lost their parent
//! become its children, so that none escapes by a session or a group of its own.
//!
//! The alternative, a signal at the parent's death (`PR_SET_PDEATHSIG`), reaches the process and not what it started: a
//! wrapper's kernel would go on beside the next sweep. It is asked for as well, for a guard that is killed.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

/// The guard's name in lists of processes: none that a pattern for kbt finds.
#[cfg(target_os = "linux")]
pub(crate) const NAME: &std::ffi::CStr = c"run-guard";
/// How often the guard kills what is left, with a rest between; what is stuck in the system's own code longer is left
/// to it.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 500;
#[cfg(target_os = "linux")]
const REST_MS: libc::c_int = 10;

/// A running process. What is left of it and of all that it started is killed when this is ended or dropped.
#[derive(Debug)]
pub struct Guarded {
    /// The guard, whose end is that of the process; elsewhere than on Linux the process itself.
    pub(crate) child: Child,
    #[cfg(target_os = "linux")]
    leash: io::PipeWriter,
}

impl Guarded {
    /// Starts a command under guard, in a process group of its own.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0);
        heed_children();
        #[cfg(target_os = "linux")]
        {
            let (end, leash) = io::pipe()?;
            let fd = end.as_raw_fd();
            // SAFETY: between fork and exec the closure makes only system calls that are async-signal-safe, and
            // allocates nothing. The descriptor is open until after the spawn.
            unsafe { command.pre_exec(move || under_guard(fd)) };
            Ok(Self { child: command.spawn()?, leash })
        }
        #[cfg(not(target_os = "linux"))]
        Ok(Self { child: command.spawn()? })
    }

    /// Whether the process has ended. It is not reaped yet, so that its number cannot be another's.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // An error means that there is nothing left to wait for.
        ended(libc::P_PID, self.child.id()) != Some(0)
    }

    /// Kills what is left, and says how the process ended.
    ///
    /// # Errors
    /// Where the system does not say.
    #[cfg(target_os = "linux")]
    pub fn end(self) -> io::Result<ExitStatus> {
        let Self { mut child, leash } = self;
        drop(leash);
        if let Ok(guard) = libc::pid_t::try_from(child.id()) {
            // SAFETY: `kill` takes two integers and touches no memory of ours. The number is still the guard's: it is our
            // child and has not been reaped. A target may have stopped it.
            unsafe { libc::kill(guard, libc::SIGCONT) };
        }
        child.wait()
    }

    /// Kills what is left, and says how the process ended.
    ///
    /// # Errors
    /// Where the system does not say.
    #[cfg(not(target_os = "linux"))]
    pub fn end(mut self) -> io::Result<ExitStatus> {
        if let Ok(leader) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: `kill` takes two integers and touches no memory of ours. The number is still the group's: its leader
            // is our child and has not been reaped.
            unsafe { libc::kill(-leader, libc::SIGKILL) };
        }
        self.child.wait()
    }
}

/// Whoever started kbt may ignore the ends of children, which is inherited: the system would then reap them unseen.
fn heed_children() {
    // SAFETY: `signal` takes two integers; the default is to do nothing, and to keep the child for its parent.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// The number of a child that has ended and is not reaped, 0 where none has, `None` where there is none at all.
fn ended(which: libc::idtype_t, id: libc::id_t) -> Option<libc::pid_t> {
    // SAFETY: an all-zero siginfo_t is a valid one, and waitid writes to it alone.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        (libc::waitid(which, id, &raw mut info, flags) == 0).then(|| info.si_pid())
    }
}

#[cfg(target_os = "linux")]
fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Splits the process that is to become the target in two: the child goes on to become it, and the parent guards it.
///
/// # Safety
/// Only between fork and exec, where one thread is left.
#[cfg(target_os = "linux")]
unsafe fn under_guard(leash: RawFd) -> io::Result<()> {
    // SAFETY: every call is async-signal-safe and gets integers, or places on this stack.
    unsafe {
        // A crash writes no core file, which would be as large as the target's memory; nor does the guard, which ends by
        // the same signal.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        checked(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
        checked(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1))?;
        let guard = libc::getpid();
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // Blocked from before the fork, or the guard might miss the target's end.
        checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before))?;
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                checked(libc::setpgid(0, 0))?;
                checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                // Where memory runs out, the target goes and not the sweep. Raising the score is allowed to everyone; where
                // /proc is not there, nothing is lost but the order.
                let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
                if score >= 0 {
                    libc::write(score, c"1000".as_ptr().cast(), 4);
                    libc::close(score);
                }
                checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()))?;
                // The guard may have ended before the request took effect.
                if libc::getppid() == guard { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
            }
            target => guard_until_the_end(leash, target),
        }
    }
}

/// The guard's whole life.
///
/// # Safety
/// Only in a process that has one thread and no other use for its descriptors.
#[cfg(target_os = "linux")]
unsafe fn guard_until_the_end(leash: RawFd, target: libc::pid_t) -> ! {
    // SAFETY: every call is async-signal-safe and gets integers, or places on this stack; the name is static. Those that
    // can fail leave the guard with less to do, and the loop ends all the same.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        close_all_but(leash);
        let mut child_ended: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut child_ended);
        libc::sigaddset(&raw mut child_ended, libc::SIGCHLD);
        let news = libc::signalfd(-1, &raw const child_ended, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        let asked = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut waited_for = [asked(leash), asked(news)];
        // Without news of its children it looks now and then.
        let rest = if news < 0 { REST_MS } else { -1 };
        loop {
            libc::poll(waited_for.as_mut_ptr(), 2, rest);
            take_news(news);
            if waited_for[0].revents != 0 || target_ended(target) {
                break;
            }
        }
        let (mut status, mut rounds) = (None, 0);
        while rounds < ROUNDS {
            rounds += 1;
            if status.is_none() {
                // Not reaped, so the number is still the group's.
                libc::kill(-target, libc::SIGKILL);
            }
            let sees_all = kill_children();
            let none_left = loop {
                let mut how = 0;
                match libc::waitpid(-1, &raw mut how, libc::WNOHANG) {
                    0 => break false,
                    child if child < 0 => break true,
                    child if child == target => status = Some(how),
                    _ => {}
                }
            };
            if none_left || (status.is_some() && !sees_all) {
                break;
            }
            libc::poll(&raw mut waited_for[1], 1, REST_MS);
            take_news(news);
        }
        end_as(status.unwrap_or(libc::SIGKILL))
    }
}

/// Whether the target has ended; it is left for later, and other children that have are reaped.
#[cfg(target_os = "linux")]
fn target_ended(target: libc::pid_t) -> bool {
    loop {
        match ended(libc::P_ALL, 0) {
            Some(0) => return false,
            Some(other) if other != target => {
                // SAFETY: the call takes integers, and no place for the status.
                unsafe { libc::waitpid(other, std::ptr::null_mut(), libc::WNOHANG) };
            }
            _ => return true,
        }
    }
}

/// Kills every child; false where the system does not say which there are.
#[cfg(target_os = "linux")]
fn kill_children() -> bool {
    let mut text = [0u8; 4096];
    // SAFETY: the path is static, and the read stays within the array. What is killed is a child that nobody else reaps.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return false;
        }
        let read = libc::read(list, text.as_mut_ptr().cast(), text.len());
        libc::close(list);
        let (mut child, mut left) = (0, usize::try_from(read).unwrap_or(0));
        // A space follows each number; one without was cut off, and comes in the next round.
        for byte in text {
            if left == 0 {
                break;
            }
            left -= 1;
            if byte.is_ascii_digit() {
                child = child * 10 + libc::pid_t::from(byte - b'0');
            } else {
                if child > 1 {
                    libc::kill(child, libc::SIGKILL);
                }
                child = 0;
            }
        }
        read >= 0
    }
}

/// Takes what a signal descriptor holds, so that the next wait is one.
#[cfg(target_os = "linux")]
fn take_news(news: RawFd) {
    let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: the read stays within the array; it does not wait.
    while unsafe { libc::read(news, bytes.as_mut_ptr().cast(), bytes.len()) } > 0 {}
}

/// Lets nothing that kbt or the target has open stay open because of the guard.
#[cfg(target_os = "linux")]
fn close_all_but(kept: RawFd) {
    let Ok(fd) = libc::c_uint::try_from(kept) else { return };
    // SAFETY: only integers, and none of these descriptors is used after.
    unsafe {
        let close_range =
            |from: libc::c_uint, to: libc::c_uint| libc::syscall(libc::SYS_close_range, from, to, 0);
        let below = fd == 0 || close_range(0, fd - 1) == 0;
        if below && close_range(fd + 1, libc::c_uint::MAX) == 0 {
            return;
        }
        // Before Linux 5.9.
        let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 1 << 20);
        for fd in 0..libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX) {
            if fd != kept {
                libc::close(fd);
            }
        }
    }
}

/// Ends as another process did, by its wait status.
#[cfg(target_os = "linux")]
fn end_as(status: libc::c_int) -> ! {
    // SAFETY: integers and a place on this stack; what follows `_exit` is never reached.
    unsafe {
        if libc::WIFEXITED(status) {
            libc::_exit(libc::WEXITSTATUS(status));
        }
        let signal = libc::WTERMSIG(status);
        libc::signal(signal, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}
