//! The socket on which the plugin asks: one line in, one line out.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::mpsc::Sender,
    time::Duration,
};

use agent_api::{ErrorKind, Refusal, Reply, Response, Version, line};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::oneshot,
    time::timeout,
};
use tracing::{debug, warn};

use crate::agent::Input;

/// A client has this long to send its line, and to take the answer.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);
/// The agent has this long to answer: longer than it ever takes to look at everything.
const AGENT_DEADLINE: Duration = Duration::from_secs(20);

/// Makes the socket's folder, where the agent also gives its sign of life.
///
/// # Errors
/// Those of mkdir(2).
pub fn make_folder(socket: &Path) -> io::Result<()> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Takes the place of whatever socket an earlier agent left. Clients never see a moment without one.
///
/// # Errors
/// Those of making the socket. Its folder must exist.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    crate::replace_file::remove_file(temporary.as_ref())?;
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
    fs::rename(&temporary, path)?;
    Ok(listener)
}

/// Serves for ever, each client by itself: a slow one holds up no other.
pub async fn serve(listener: UnixListener, agent: Sender<Input>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, agent.clone()))),
            Err(error) => {
                // Out of file descriptors, most likely: that passes.
                warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, agent: Sender<Input>) {
    let result = match timeout(CLIENT_DEADLINE, read_line(&mut stream)).await {
        Ok(Ok(line)) => ask(&line, &agent).await,
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Refusal { kind: ErrorKind::Invalid, message: error.to_string() })
        }
        // Nobody is there to be answered.
        Ok(Err(_)) => return,
        Err(_) => Err(Refusal { kind: ErrorKind::Invalid, message: "no request came in time".into() }),
    };
    if let Err(refusal) = &result {
        debug!(%refusal, "request refused");
    }
    let Ok(line) = line::encode(&Response { version: Version::CURRENT, result }) else { return };
    // A client that no longer wants its answer has its own deadline.
    let _ = timeout(CLIENT_DEADLINE, stream.write_all(&line)).await;
}

/// Asks the agent.
async fn ask(line: &[u8], agent: &Sender<Input>) -> Result<Reply, Refusal> {
    let request = line::decode_request(line)?;
    let (reply, answer) = oneshot::channel();
    let away = || Refusal { kind: ErrorKind::TryAgain, message: "the agent is ending".into() };
    agent.send(Input::Request(request.verb, reply)).map_err(|_| away())?;
    match timeout(AGENT_DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|_| away())?,
        Err(_) => Err(Refusal { kind: ErrorKind::TryAgain, message: "the agent is busy".into() }),
    }
}

/// As [`line::read_line`], without blocking.
async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut incoming = line::Incoming::default();
    let mut piece = [0; line::PIECE];
    loop {
        let count = stream.read(&mut piece).await?;
        if let Some(line) = incoming.take(&piece[..count])? {
            return Ok(line);
        }
    }
}
