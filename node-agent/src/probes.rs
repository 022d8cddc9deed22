//! Probes peers: packets out, answers in, what they tell to the agent. When and what they mean is [`agent_core::probes`]'.

mod echo;
mod socket;

use std::{
    io,
    net::IpAddr,
    sync::{Arc, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use agent_core::{
    lease::Timestamp,
    probes::{Outcomes, Probe, Prober, Targets},
    world::Event,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::sync::watch;
use tracing::{debug, warn};

use self::{echo::Token, socket::Socket};
use crate::{agent::Input, clock};

/// What is due is asked for this often.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of the largest packet.
const LARGEST: usize = 1 << 16;

/// What has become of probes.
pub type Counters = Family<ResultLabel, Counter>;

/// `sent`, `answered`, `unsent` (the kernel refused them), or `foreign` (an echo came that answers nothing of ours).
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabel {
    result: &'static str,
}

fn count(counters: &Counters, result: &'static str) {
    counters.get_or_create(&ResultLabel { result }).inc();
}

/// Probes what `targets` names, in a thread that ends with the agent.
///
/// # Errors
/// If the system gives no thread, or no name for the probes.
pub fn start(
    targets: watch::Receiver<Arc<Targets>>,
    agent: Sender<Input>,
    counters: Counters,
) -> io::Result<()> {
    // What tells this agent's probes from those of others.
    let token = Token(clock::random()?.to_be_bytes());
    let begin = Instant::now();
    let probing = Probing { token, begin, prober: Prober::default(), four: None, six: None, counters };
    thread::Builder::new().name("probes".into()).spawn(move || probing.run(targets, &agent))?;
    Ok(())
}

struct Probing {
    token: Token,
    begin: Instant,
    prober: Prober,
    four: Option<Socket>,
    six: Option<Socket>,
    counters: Counters,
}

impl Probing {
    fn run(mut self, mut targets: watch::Receiver<Arc<Targets>>, agent: &Sender<Input>) {
        let mut told = Outcomes::default();
        let mut buffer = vec![0; LARGEST];
        let mut next_tick = self.begin;
        // An error: the agent is gone.
        while targets.has_changed().is_ok() {
            // Value and mark in one step: what comes between two would count as seen.
            let (current, changed) = {
                let newest = targets.borrow_and_update();
                (Arc::clone(&newest), newest.has_changed())
            };
            if changed {
                self.prober.update(&current.peers, self.now());
            }
            if next_tick <= Instant::now() {
                next_tick = Instant::now() + TICK;
                self.open(&current.sources);
                self.send_due();
                // Together, not answer by answer: each news makes the agent think of all peers.
                let outcomes = self.prober.outcomes(self.now());
                if outcomes != told {
                    told.clone_from(&outcomes);
                    if agent.send(Input::Event(Event::Probed(Box::new(outcomes)))).is_err() {
                        return;
                    }
                }
            }
            self.receive(&mut buffer, next_tick.saturating_duration_since(Instant::now()));
        }
    }

    /// Takes in the answers that come within some time.
    fn receive(&mut self, buffer: &mut [u8], longest: Duration) {
        if let Err(error) = socket::wait(self.four.iter().chain(&self.six), longest) {
            warn!(%error, "answers to probes not waited for");
            thread::sleep(longest);
        }
        let sockets = [self.four.take(), self.six.take()];
        for socket in sockets.iter().flatten() {
            loop {
                match socket.receive(buffer) {
                    Ok(Some((from, packet))) => self.take(from, packet),
                    Ok(None) => break,
                    // Errors of the way, such as "host unreachable", are told to the socket: silence says the same.
                    Err(error) => {
                        debug!(%error, source = %socket.source, "answer to a probe not received");
                        break;
                    }
                }
            }
        }
        [self.four, self.six] = sockets;
    }

    fn now(&self) -> Timestamp {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sockets for the addresses that probes come from. An address that is not there yet gets its socket later.
    fn open(&mut self, sources: &[IpAddr]) {
        for (family, ip6) in [(&mut self.four, false), (&mut self.six, true)] {
            let source = sources.iter().copied().find(|source| source.is_ipv6() == ip6);
            if family.as_ref().map(|socket| socket.source) == source {
                continue;
            }
            *family = source.and_then(|source| {
                Socket::open(source)
                    .inspect_err(|error| debug!(%error, %source, "probes cannot be sent yet"))
                    .ok()
            });
        }
    }

    fn send_due(&mut self) {
        for probe in self.prober.due(self.now()) {
            let sent = self.send(probe);
            if let Err(error) = &sent {
                debug!(%error, to = %probe.to, size = probe.size, "probe not sent");
            }
            count(&self.counters, if sent.is_ok() { "sent" } else { "unsent" });
        }
    }

    fn send(&self, probe: Probe) -> io::Result<()> {
        let socket = if probe.to.is_ipv6() { &self.six } else { &self.four };
        let socket = socket.as_ref().ok_or(io::ErrorKind::AddrNotAvailable)?;
        socket.send(probe.to, &self.token.request(probe.to, probe.sequence, probe.size))
    }

    fn take(&mut self, from: IpAddr, packet: &[u8]) {
        // The socket gets all of the address's ICMP.
        let Some(answer) = self.token.answer(from.is_ipv6(), packet) else { return };
        let ours = self.prober.answered(from, answer.sequence, answer.size, self.now());
        count(&self.counters, if ours { "answered" } else { "foreign" });
    }
}
