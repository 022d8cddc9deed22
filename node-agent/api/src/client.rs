//! A blocking client of the agent's socket, every wait of which ends in time.

use std::{
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};

use crate::{ErrorKind, Refusal, Reply, Request, Response, Verb, Version, line};

/// How long [`Client::call_patiently`] waits between two looks for the agent.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The agent, as the plugin sees it.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why there is no reply, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or whoever did went away before it answered: wait, or leave word in the pending folder.
    #[error("no agent at {}: {source}", socket.display())]
    Away {
        /// Where it was looked for.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The agent is there and did not answer in time. It may or may not have done what it was asked.
    #[error("the agent at {} did not answer within {timeout:?}", socket.display())]
    TimedOut {
        /// Where it was asked.
        socket: PathBuf,
        /// How long.
        timeout: Duration,
    },
    /// The agent answered no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Whoever answered is no agent of this protocol.
    #[error("the answer at {} is not understood: {reason}", socket.display())]
    Garbled {
        /// Where it was asked.
        socket: PathBuf,
        /// What is wrong with the answer.
        reason: String,
    },
}

impl Client {
    /// A client of the agent that listens, or will, on `socket`. Connects on each call.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Asks once, and has the reply or an error within `timeout`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn call(&self, verb: Verb, timeout: Duration) -> Result<Reply, ClientError> {
        let exchange = || -> io::Result<Vec<u8>> {
            let mut stream = Deadlined { stream: self.connect()?, deadline: Instant::now() + timeout };
            stream.write_all(&line::encode(&Request { version: Version::CURRENT, verb })?)?;
            line::read_line(stream)
        };
        let answer = exchange().map_err(|source| self.explain(source, timeout))?;
        match line::decode_response(&answer) {
            Ok(Response { result, .. }) => Ok(result?),
            Err(refusal) if refusal.kind == ErrorKind::Version => Err(refusal.into()),
            Err(refusal) => {
                Err(ClientError::Garbled { socket: self.socket.clone(), reason: refusal.message })
            }
        }
    }

    /// Asks again and again while the agent is away, for at most `patience`; each time as [`Client::call`].
    ///
    /// # Errors
    /// Any [`ClientError`]; `Away` only when the patience is used up.
    pub fn call_patiently(
        &self,
        verb: &Verb,
        patience: Duration,
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        let give_up = Instant::now() + patience;
        loop {
            match self.call(verb.clone(), timeout) {
                Err(ClientError::Away { .. }) if Instant::now() < give_up => thread::sleep(RETRY_INTERVAL),
                result => return result,
            }
        }
    }

    /// A connected stream. Connecting a blocking unix socket waits while the listener's backlog is full, for ever
    /// if need be; a non-blocking one says EAGAIN at once.
    fn connect(&self) -> io::Result<UnixStream> {
        let address = UnixAddr::new(&self.socket)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        match connect(stream.as_raw_fd(), &address) {
            Err(Errno::EAGAIN) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "its backlog is full"));
            }
            result => result?,
        }
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    fn explain(&self, source: io::Error, timeout: Duration) -> ClientError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::TimedOut => ClientError::TimedOut { socket, timeout },
            io::ErrorKind::InvalidData => ClientError::Garbled { socket, reason: source.to_string() },
            _ => ClientError::Away { socket, source },
        }
    }
}

/// A stream all of whose reads and writes end at one point in time, with `TimedOut`.
struct Deadlined {
    stream: UnixStream,
    deadline: Instant,
}

impl Deadlined {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            rest => Ok(Some(rest)),
        }
    }
}

/// A socket timeout shows as EAGAIN.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Deadlined {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Deadlined {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(buffer).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, sync::mpsc};

    use super::*;
    use crate::Readiness;

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(100);

    /// Serves one connection on `listener` with `serve` and gives the request that came.
    fn agent(
        listener: UnixListener,
        serve: impl FnOnce(UnixStream) + Send + 'static,
    ) -> mpsc::Receiver<Result<Request, Refusal>> {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let request = line::decode_request(&line::read_line(&stream).unwrap());
            let _ = send.send(request); // few tests look at it
            serve(stream);
        });
        receive
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent.sock");
        (directory, socket)
    }

    fn answer(mut stream: UnixStream, result: Result<Reply, Refusal>) {
        stream.write_all(&line::encode(&Response { version: Version::CURRENT, result }).unwrap()).unwrap();
    }

    #[test]
    fn a_reply_comes_back() {
        let (_directory, socket) = place();
        let requests = agent(UnixListener::bind(&socket).unwrap(), |stream| {
            answer(stream, Ok(Reply::Readiness(Readiness::Ready)));
        });
        let reply = Client::new(&socket).call(Verb::Status, LONG).unwrap();
        assert_eq!(reply, Reply::Readiness(Readiness::Ready));
        assert_eq!(requests.recv().unwrap().unwrap().verb, Verb::Status);
    }

    #[test]
    fn a_refusal_comes_back() {
        let (_directory, socket) = place();
        let refusal = Refusal { kind: ErrorKind::Exhausted, message: "no address is free".into() };
        let sent = refusal.clone();
        agent(UnixListener::bind(&socket).unwrap(), |stream| answer(stream, Err(sent)));
        let error = Client::new(&socket).call(Verb::Status, LONG).unwrap_err();
        assert!(matches!(&error, ClientError::Refused(found) if *found == refusal), "{error:?}");
    }

    #[test]
    fn no_socket_is_away() {
        let (_directory, socket) = place();
        let error = Client::new(&socket).call_patiently(&Verb::Status, SHORT, LONG).unwrap_err();
        assert!(matches!(error, ClientError::Away { .. }), "{error:?}");
    }

    #[test]
    fn an_agent_that_dies_before_it_answers_is_away() {
        let (_directory, socket) = place();
        agent(UnixListener::bind(&socket).unwrap(), drop);
        let error = Client::new(&socket).call(Verb::Status, LONG).unwrap_err();
        assert!(matches!(error, ClientError::Away { .. }), "{error:?}");
    }

    #[test]
    fn an_agent_that_comes_late_is_waited_for() {
        let (_directory, socket) = place();
        let late = socket.clone();
        let caller = thread::spawn(move || Client::new(late).call_patiently(&Verb::Status, LONG, LONG));
        agent(UnixListener::bind(&socket).unwrap(), |stream| answer(stream, Ok(Reply::Done)));
        assert_eq!(caller.join().unwrap().unwrap(), Reply::Done);
    }

    #[test]
    fn a_silent_agent_times_out() {
        let (_directory, socket) = place();
        let (keep, kept) = mpsc::channel();
        agent(UnixListener::bind(&socket).unwrap(), move |stream| keep.send(stream).unwrap());
        let error = Client::new(&socket).call(Verb::Status, SHORT).unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
        drop(kept.recv().unwrap());
    }

    #[test]
    fn an_agent_that_drips_times_out_as_a_whole() {
        let (_directory, socket) = place();
        agent(UnixListener::bind(&socket).unwrap(), |mut stream| {
            while stream.write_all(b" ").is_ok() {
                thread::yield_now();
            }
        });
        let error = Client::new(&socket).call(Verb::Status, SHORT).unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { .. } | ClientError::Garbled { .. }), "{error:?}");
    }

    #[test]
    fn a_listener_that_never_accepts_times_out() {
        let (_directory, socket) = place();
        let _listener = UnixListener::bind(&socket).unwrap();
        let error = Client::new(&socket).call(Verb::Status, SHORT).unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    }

    #[test]
    fn nonsense_is_no_answer() {
        let (_directory, socket) = place();
        agent(UnixListener::bind(&socket).unwrap(), |mut stream| stream.write_all(b"220 ready\n").unwrap());
        let error = Client::new(&socket).call(Verb::Status, LONG).unwrap_err();
        assert!(matches!(error, ClientError::Garbled { .. }), "{error:?}");
    }
}
