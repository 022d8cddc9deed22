//! Builds the eBPF object, which the crate embeds.
//!
//! It takes a compiler that has `core` for the BPF target, and something that makes an object of LLVM bitcode:
//!
//! | compiler | back end |
//! |---|---|
//! | Debian's `rustc-web` with `libstd-rust-web-dev-bpf` | Debian's `llvm-NN` of the same LLVM version, or `bpf-linker` |
//! | rustup's nightly with `rust-src` | `bpf-linker` |
//!
//! `HEADWAY_BPF_OBJECT` names an object that was built elsewhere, `HEADWAY_BPF_RUSTC` another compiler to try first.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

const TARGET: &str = "bpfel-unknown-none";
const PROGRAMS: &str = "../../bpf/programs";
const BINARY: &str = "headway-bpf";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

fn main() -> Result<()> {
    for path in ["src", "Cargo.toml", "Cargo.lock", "../common/src", "../common/Cargo.toml"] {
        println!("cargo:rerun-if-changed={PROGRAMS}/{path}");
    }
    for variable in ["HEADWAY_BPF_OBJECT", "HEADWAY_BPF_RUSTC"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set: run by cargo only")?);
    let object = out.join("headway.bpf.o");
    if let Some(prebuilt) = env::var_os("HEADWAY_BPF_OBJECT") {
        let from = Path::new(&prebuilt);
        fs::copy(from, &object).with_context(|| format!("HEADWAY_BPF_OBJECT: copying {}", from.display()))?;
        return Ok(());
    }
    let built = match Compiler::find()? {
        Compiler::Ready { rustc, llc: Some(llc) } => with_llc(&rustc, &llc, &out),
        Compiler::Ready { rustc, llc: None } => with_bpf_linker(ready_cargo(&rustc)?, "build", &out),
        Compiler::Nightly => with_bpf_linker(nightly_cargo(), "build", &out),
    }?;
    fs::copy(&built, &object).with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}

/// What can compile for the BPF target here.
enum Compiler {
    /// A stable compiler with a ready `core`, and the `llc` of its LLVM version; without one: bpf-linker.
    Ready { rustc: String, llc: Option<String> },
    /// rustup's nightly, which builds `core` from source.
    Nightly,
}

impl Compiler {
    fn find() -> Result<Self> {
        let own = env::var("HEADWAY_BPF_RUSTC").ok();
        let linker = in_path("bpf-linker");
        let ready =
            own.into_iter().chain(["rustc".into(), DEBIAN_RUSTC.into()]).find(|rustc| has_core(rustc));
        if let Some(rustc) = ready {
            let wanted = format!("llc-{}", llvm_major(&rustc)?);
            let llc = in_path(&wanted).then_some(wanted.clone());
            ensure!(
                llc.is_some() || linker,
                "{rustc} can compile for {TARGET}, but neither {wanted} nor bpf-linker is in PATH: \
                 `apt-get install {}` or `cargo install bpf-linker`",
                wanted.replace("llc", "llvm")
            );
            return Ok(Self::Ready { rustc, llc });
        }
        let source = sysroot(nightly("rustc")).map(|root| root.join("lib/rustlib/src/rust/library/core"));
        if source.is_some_and(|core| core.is_dir()) {
            ensure!(linker, "bpf-linker is not in PATH: `cargo install bpf-linker`");
            return Ok(Self::Nightly);
        }
        bail!(
            "no Rust compiler for {TARGET}. On Debian: `apt-get install --no-install-recommends rustc-web \
             libstd-rust-web-dev-bpf llvm-22`. Elsewhere: `rustup toolchain install nightly --component rust-src` and \
             `cargo install bpf-linker`. Or set HEADWAY_BPF_OBJECT to an object that was built elsewhere."
        )
    }
}

/// Compiles to one piece of bitcode, which rustc's objects for this target are, and that to an object.
fn with_llc(rustc: &str, llc: &str, out: &Path) -> Result<PathBuf> {
    let bitcode = out.join("headway.bc");
    let mut cargo = ready_cargo(rustc)?;
    common(&mut cargo, "rustc", out);
    cargo.arg("--").arg(format!("--emit=obj={}", bitcode.display()));
    // Nothing is linked: with full LTO the one object holds the whole program.
    cargo.args(["-Clinker=/bin/true", "-Clto=fat", "-Ccodegen-units=1", "-Cdebuginfo=2"]);
    run(&mut cargo)?;
    let object = out.join("headway.llc.o");
    let mut backend = clean(llc);
    backend.args(["-march=bpfel", "-mcpu=v3", "-filetype=obj", "-o"]).arg(&object).arg(&bitcode);
    run(&mut backend)?;
    Ok(object)
}

fn with_bpf_linker(mut cargo: Command, verb: &str, out: &Path) -> Result<PathBuf> {
    common(&mut cargo, verb, out);
    cargo.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_RUSTFLAGS", "-Clink-arg=--btf -Clinker=bpf-linker");
    run(&mut cargo)?;
    Ok(out.join("ebpf").join(TARGET).join("release").join(BINARY))
}

fn common(cargo: &mut Command, verb: &str, out: &Path) {
    cargo.current_dir(PROGRAMS).arg(verb);
    cargo
        .args(["--bin", BINARY, "--release", "--locked", "--target", TARGET, "--target-dir"])
        .arg(out.join("ebpf"));
}

fn ready_cargo(rustc: &str) -> Result<Command> {
    let mut cargo = clean(env::var_os("CARGO").context("CARGO is not set: run by cargo only")?);
    // The programs use one unstable feature: assembly for this target.
    cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
    Ok(cargo)
}

fn nightly(program: &str) -> Command {
    let mut rustup = clean("rustup");
    rustup.env_remove("RUSTUP_TOOLCHAIN").args(["run", "nightly", program]);
    rustup
}

fn nightly_cargo() -> Command {
    let mut cargo = nightly("cargo");
    cargo.env("CARGO_UNSTABLE_BUILD_STD", "core");
    cargo
}

/// A command without what the outer cargo has set for the build of the host's programs.
fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTC",
        "CARGO_TARGET_DIR",
    ] {
        command.env_remove(variable);
    }
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(())
}

fn output(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn sysroot(mut rustc: Command) -> Option<PathBuf> {
    rustc.args(["--print", "sysroot"]);
    Some(PathBuf::from(output(rustc)?.trim()))
}

fn has_core(rustc: &str) -> bool {
    sysroot(clean(rustc)).is_some_and(|root| root.join("lib/rustlib").join(TARGET).join("lib").is_dir())
}

fn llvm_major(rustc: &str) -> Result<String> {
    let mut command = clean(rustc);
    command.arg("-vV");
    let text = output(command).with_context(|| format!("{rustc} -vV failed"))?;
    let version = text.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next());
    Ok(major.with_context(|| format!("{rustc} -vV names no LLVM version"))?.to_owned())
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
