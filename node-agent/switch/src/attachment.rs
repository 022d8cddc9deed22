//! tcx links: which program runs on which interface.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType,
    links::{FdLink, LinkError, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
};
use bpf_common::program::Program;
use nix::{errno::Errno, net::if_::if_indextoname};

use crate::{
    error::Error,
    pinned_link::take_down,
    switch::{Switch, classifier, links},
    tcx_query::{name_of, programs_at},
};

/// State of a link that is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// It runs this build's program.
    Current,
    /// It runs a program that another agent process has loaded.
    Other,
    /// Its interface is gone; only the pin is left.
    Gone,
}

/// Somebody else's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The kernel's number for it.
    pub id: u32,
    /// Its name, at most 15 bytes; empty where the kernel does not let this process look at it.
    pub name: String,
}

impl Switch {
    /// Makes the program run on the interface, ahead of everybody else's: replaces the program in our link there, or
    /// makes a new one. Either way no packet passes unseen in between.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; others if the kernel refuses.
    pub fn attach(&mut self, program: Program, ifindex: u32) -> Result<(), Error> {
        let name = interface(ifindex)?;
        let pin = self.pin(program, ifindex);
        let loaded = classifier(&mut self.ebpf, program)?;
        if replace(loaded, &pin)? {
            return Ok(());
        }
        let what = || format!("{} to {name}", program.name());
        let order = TcAttachOptions::TcxOrder(LinkOrder::first());
        let id = loaded
            .attach_with_options(&name, TcAttachType::Ingress, order)
            .map_err(Error::program("attaching", what()))?;
        let link = loaded.take_link(id).map_err(Error::program("attaching", what()))?;
        let link = FdLink::try_from(link).map_err(Error::program("attaching", what()))?;
        link.pin(&pin).map_err(Error::program("pinning", pin.display().to_string()))?;
        Ok(())
    }

    /// Takes the program off the interface, if it is there. No packet is passed to it any more when this returns.
    ///
    /// # Errors
    /// If the kernel refuses, or the pin cannot be removed.
    pub fn detach(&mut self, program: Program, ifindex: u32) -> Result<(), Error> {
        take_down(&self.pin(program, ifindex))
    }

    /// All links that are pinned, by program and interface index.
    ///
    /// # Errors
    /// If pins or links cannot be read.
    pub fn attachments(&mut self) -> Result<BTreeMap<(Program, u32), Attached>, Error> {
        let folder = links(&self.dir);
        let mut attachments = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(Error::file("reading", &folder))? {
            let name = entry.map_err(Error::file("reading", &folder))?.file_name();
            if let Some(Pin { program, ifindex }) = name.to_str().and_then(Pin::parse) {
                attachments.insert((program, ifindex), self.attached(program, ifindex)?);
            }
        }
        Ok(attachments)
    }

    fn attached(&mut self, program: Program, ifindex: u32) -> Result<Attached, Error> {
        let pin = self.pin(program, ifindex);
        let runs = program_in(&pin).map_err(Error::program("reading", pin.display().to_string()))?;
        if !programs_at(ifindex)?.contains(&runs) {
            return Ok(Attached::Gone);
        }
        let own = classifier(&mut self.ebpf, program)?.info();
        let own = own.map_err(Error::program("looking at", program.name()))?;
        Ok(if own.id() == runs { Attached::Current } else { Attached::Other })
    }

    /// Programs of others that see packets of the interface before ours does; all of them if ours is not there.
    ///
    /// # Errors
    /// If the kernel refuses the query.
    pub fn ahead_of_us(&self, ifindex: u32) -> Result<Vec<Foreign>, Error> {
        let pins = Program::ALL.map(|program| self.pin(program, ifindex));
        let ours: Vec<u32> = pins.iter().filter_map(|pin| program_in(pin).ok()).collect();
        let ahead = programs_at(ifindex)?.into_iter().take_while(|id| !ours.contains(id));
        Ok(ahead.map(|id| Foreign { id, name: name_of(id) }).collect())
    }

    fn pin(&self, program: Program, ifindex: u32) -> PathBuf {
        links(&self.dir).join(Pin { program, ifindex }.to_string())
    }
}

/// Replaces the program in the pinned link. False if there is none, or one whose interface is gone (ENOLINK); that pin
/// is removed then.
fn replace(program: &mut SchedClassifier, pin: &Path) -> Result<bool, Error> {
    let what = || pin.display().to_string();
    let link = match PinnedLink::from_pin(pin) {
        Err(LinkError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
            return Ok(false);
        }
        link => link.map_err(Error::program("opening", what()))?,
    };
    let link =
        SchedClassifierLink::try_from(FdLink::from(link)).map_err(Error::program("opening", what()))?;
    match program.attach_to_link(link) {
        Ok(id) => {
            program.take_link(id).map_err(Error::program("replacing", what()))?;
            Ok(true)
        }
        Err(ProgramError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(Errno::ENOLINK as i32) =>
        {
            fs::remove_file(pin).map_err(Error::file("removing", pin))?;
            Ok(false)
        }
        Err(error) => Err(Error::program("replacing", what())(error)),
    }
}

/// The program that the pinned link runs.
fn program_in(pin: &Path) -> Result<u32, LinkError> {
    Ok(FdLink::from(PinnedLink::from_pin(pin)?).info()?.program_id())
}

fn interface(ifindex: u32) -> Result<String, Error> {
    // nix takes the null pointer of a failure for success and gives an empty name.
    let name = if_indextoname(ifindex).ok().and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty()).ok_or(Error::NoDevice { ifindex })
}

/// The name under which a link is pinned.
struct Pin {
    program: Program,
    ifindex: u32,
}

impl Pin {
    fn parse(name: &str) -> Option<Self> {
        let (word, ifindex) = name.split_once('-')?;
        let program = Program::ALL.into_iter().find(|program| pin_word(*program) == word)?;
        Some(Self { program, ifindex: ifindex.parse().ok()? })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", pin_word(self.program), self.ifindex)
    }
}

fn pin_word(program: Program) -> &'static str {
    match program {
        Program::Endpoint => "endpoint",
        Program::Uplink => "uplink",
        Program::Segment => "segment",
    }
}
