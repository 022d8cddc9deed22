//! An agent that says what the test wants and remembers what it was asked.

use std::{
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use agent_api::{Assignment, ErrorKind, Refusal, Reply, Response, Verb, Version, line};

/// What an agent does with a request: answers, or (nothing) hangs up.
pub type Saying = Option<Result<Reply, Refusal>>;

/// The agent. It ends with its value, and its socket with it; or when somebody takes its socket away.
pub struct Agent {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<Verb>>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub fn start(socket: &Path, mut say: impl FnMut(&Verb) -> Saying + Send + 'static) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (end, ask) = (Arc::clone(&ended), Arc::clone(&asked));
        let path = socket.to_owned();
        let serve = move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                let Ok(text) = line::read_line(&stream) else { continue };
                let verb = line::decode_request(&text).unwrap().verb;
                let said = say(&verb);
                ask.lock().unwrap().push(verb);
                if let Some(result) = said {
                    let response = Response { version: Version::CURRENT, result };
                    let _ = stream.write_all(&line::encode(&response).unwrap());
                }
                if !path.exists() {
                    return;
                }
            }
        };
        Self { socket: socket.to_owned(), ended, asked, thread: Some(thread::spawn(serve)) }
    }

    /// One that gives this assignment and agrees to all else.
    pub fn assigning(socket: &Path, assignment: Assignment) -> Self {
        Self::start(socket, move |verb| Some(Ok(agree(verb, &assignment))))
    }

    /// What it was asked, by the name of the verb.
    pub fn verbs(&self) -> Vec<&'static str> {
        self.asked().iter().map(name).collect()
    }

    pub fn asked(&self) -> Vec<Verb> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.socket); // wakes the thread
        let joined = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.socket);
        if !thread::panicking() {
            joined.unwrap().unwrap();
        }
    }
}

/// The answer of an agent that is content.
pub fn agree(verb: &Verb, assignment: &Assignment) -> Reply {
    match verb {
        Verb::Reserve(_) => Reply::Assigned(assignment.clone()),
        Verb::Check(_) => Reply::Problems(Vec::new()),
        Verb::Status => Reply::Readiness(agent_api::Readiness::Ready),
        Verb::Activate(_) | Verb::Release(_) | Verb::Gc(_) | Verb::Report => Reply::Done,
    }
}

pub fn refuse(kind: ErrorKind, message: &str) -> Saying {
    Some(Err(Refusal { kind, message: message.to_owned() }))
}

fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Reserve(_) => "reserve",
        Verb::Activate(_) => "activate",
        Verb::Release(_) => "release",
        Verb::Check(_) => "check",
        Verb::Status => "status",
        Verb::Gc(_) => "gc",
        Verb::Report => "report",
    }
}
