//! Maps that the programs fill by themselves, and that another layout takes over with what is in them.

use std::path::Path;

use aya::maps::{MapData, MapError};
use bpf_common::{
    maps::{Flow, FlowKey},
    names::{CONNECTIONS, FLOWS},
};

use crate::error::Error;

/// Pins the maps in `from` in `to` as well, where there is none of their name: programs of both layouts then use the same ones.
/// A map of other sizes is not taken over.
///
/// # Errors
/// If the kernel refuses to open, look at or pin one.
pub(crate) fn carry_over(from: &Path, to: &Path) -> Result<(), Error> {
    for name in [CONNECTIONS, FLOWS] {
        let (from, to) = (from.join(name), to.join(name));
        if !from.exists() || to.exists() {
            continue;
        }
        let error = |source: MapError| Error::Map { map: name, source: source.into() };
        let map = MapData::from_pin(&from).map_err(error)?;
        let info = map.info().map_err(error)?;
        if (info.key_size() as usize, info.value_size() as usize) == (size_of::<FlowKey>(), size_of::<Flow>())
        {
            map.pin(&to).map_err(Error::program("pinning", to.display().to_string()))?;
        }
    }
    Ok(())
}
