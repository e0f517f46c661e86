//! Signals: the ones that stop this process, and the ones that a storm sends to its server processes.

use tokio::process::Child;

/// What a process can be told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate,
    /// Stop where it is, without being asked.
    Stop,
    /// Go on from there.
    Continue,
}

/// Sends a signal to a child that has not been waited for.
#[cfg(unix)]
pub(crate) fn send(child: &Child, signal: Signal) -> std::io::Result<()> {
    use rustix::process::{Pid, Signal as Number, kill_process};
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let pid = pid.ok_or_else(|| std::io::Error::other("the process has ended"))?;
    let number = match signal {
        Signal::Terminate => Number::TERM,
        Signal::Stop => Number::STOP,
        Signal::Continue => Number::CONT,
    };
    Ok(kill_process(pid, number)?)
}

#[cfg(not(unix))]
pub(crate) fn send(_: &Child, _: Signal) -> std::io::Result<()> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "server processes need the signals of Unix"))
}

/// Ends this process at once when the one that started it is gone, and with it the other end of the standard input.
pub(crate) fn end_with_parent() -> std::io::Result<()> {
    // A process that is stopped cannot see the end of anything.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // Everywhere, and if the parent was gone before. A thread of its own, since nothing can end such a read.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    Ok(())
}

/// Ctrl-C or SIGTERM. Listened for from the start, so that none that comes early kills the process.
pub(crate) struct Interrupt {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Interrupt {
    #[cfg(unix)]
    pub(crate) fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    #[cfg(unix)]
    pub(crate) async fn arrived(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn arrived(self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
