//! What this process gives up before it reads a byte.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files nest deeply.
const STACK_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub memory_bytes: u64,
    pub cpu_secs: u64,
}

impl Limits {
    pub fn apply(self) -> io::Result<()> {
        set(Resource::As, self.memory_bytes)?;
        set(Resource::Core, 0)?;
        set(Resource::Stack, STACK_BYTES)?;
        set(Resource::Cpu, self.cpu_secs)
    }

    /// Half a second for each page, as the worker counts too.
    pub fn allow_cpu_for(self, pages: u32) -> io::Result<()> {
        set(Resource::Cpu, self.cpu_secs.saturating_add(u64::from(pages) / 2))
    }
}

/// The soft limit alone: what goes beyond it fails, and this process has no way to raise it but by this function.
fn set(resource: Resource, wanted: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    setrlimit(resource, Rlimit { current: Some(current), maximum })?;
    Ok(())
}

/// The calling thread keeps what computing, reading what is open and writing there need, and nothing else: everything else
/// fails as if it were not permitted. It cannot be left.
#[cfg(target_os = "linux")]
pub fn enter() -> io::Result<()> {
    use std::collections::BTreeMap;
    use std::env::consts::ARCH;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    let rules: BTreeMap<_, _> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

#[cfg(not(target_os = "linux"))]
pub fn enter() -> io::Result<()> {
    Ok(())
}

/// System calls of a thread that computes. A file is opened by none of them, nor is a socket or a process.
#[cfg(target_os = "linux")]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    // The CPU limit grows with the pages.
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    // An abort, with its reason.
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

pub fn wait_until_nobody_reads() -> io::Result<()> {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    loop {
        match poll(&mut fds, None) {
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
