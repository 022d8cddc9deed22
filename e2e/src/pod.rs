//! A pod: a namespace that a runtime attaches.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Output,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Netns, PacketSocket,
    cni::{Attachment, CniError, Runtime},
};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A pod. On drop it is detached and its namespace removed.
#[derive(Debug)]
pub struct Pod<'a> {
    /// Its namespace.
    pub netns: Netns,
    /// The runtime of its node.
    pub runtime: Runtime<'a>,
    /// What the runtime remembers.
    pub attachment: Attachment,
    attached: bool,
}

impl<'a> Pod<'a> {
    #[track_caller]
    pub(crate) fn new(runtime: Runtime<'a>, netns: &str, name: &str) -> Self {
        let netns = Netns::create(netns);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let container = format!("{:08x}{number:024x}", std::process::id());
        let args =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=e2e;K8S_POD_NAME={name};K8S_POD_UID={container}");
        let attachment = Attachment {
            container,
            ifname: "eth0".to_owned(),
            netns: netns.path(),
            args,
            result: serde_json::Value::Null,
        };
        Self { netns, runtime, attachment, attached: false }
    }

    /// ADD.
    ///
    /// # Errors
    /// What the plugin says.
    #[track_caller]
    pub fn try_attach(&mut self) -> Result<(), CniError> {
        self.attached = true;
        self.attachment.result = self.runtime.add(&self.attachment)?;
        Ok(())
    }

    /// ADD that has to work.
    ///
    /// # Panics
    /// It does not.
    #[must_use]
    #[track_caller]
    pub fn attach(mut self) -> Self {
        self.try_attach().unwrap_or_else(|error| panic!("{}: {error}", self.netns.name()));
        self
    }

    /// DEL that has to work. May be repeated.
    ///
    /// # Panics
    /// It does not.
    #[track_caller]
    pub fn detach(&mut self) {
        self.runtime.del(&self.attachment).unwrap_or_else(|error| panic!("{}: {error}", self.netns.name()));
        self.attached = false;
    }

    /// Leaves the pod attached when this value is dropped; its namespace goes all the same.
    pub fn abandon(mut self) {
        self.attached = false;
    }

    /// CHECK.
    ///
    /// # Errors
    /// What the plugin says.
    #[track_caller]
    pub fn check(&self) -> Result<(), CniError> {
        self.runtime.check(&self.attachment)
    }

    /// Its addresses, IPv4 first, as the result of ADD gave them.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let ips = self.attachment.result["ips"].as_array().into_iter().flatten();
        let addresses = ips.filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok());
        let mut addresses: Vec<IpAddr> = addresses.collect();
        addresses.sort();
        addresses
    }

    /// Its IPv4 address.
    ///
    /// # Panics
    /// It has none.
    #[must_use]
    #[track_caller]
    pub fn ip4(&self) -> Ipv4Addr {
        let four =
            self.addresses().into_iter().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None });
        four.unwrap_or_else(|| {
            panic!("{} has no IPv4 address: {}", self.netns.name(), self.attachment.result)
        })
    }

    /// Its IPv6 address.
    ///
    /// # Panics
    /// It has none.
    #[must_use]
    #[track_caller]
    pub fn ip6(&self) -> Ipv6Addr {
        let six =
            self.addresses().into_iter().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(ip) } else { None });
        six.unwrap_or_else(|| panic!("{} has no IPv6 address: {}", self.netns.name(), self.attachment.result))
    }

    /// MAC of `eth0`, as the kernel has it.
    #[must_use]
    #[track_caller]
    pub fn mac(&self) -> [u8; 6] {
        self.netns.mac(&self.attachment.ifname)
    }

    /// MTU of `eth0`.
    ///
    /// # Panics
    /// There is no `eth0`.
    #[must_use]
    #[track_caller]
    pub fn mtu(&self) -> usize {
        let link = self.netns.ip_json(&format!("link show dev {}", self.attachment.ifname));
        link[0]["mtu"].as_u64().and_then(|mtu| mtu.try_into().ok()).expect("the link has an MTU")
    }

    /// Name of the link on the node, from the result of ADD.
    ///
    /// # Panics
    /// The result names none.
    #[must_use]
    #[track_caller]
    pub fn host_link(&self) -> String {
        let interfaces = self.attachment.result["interfaces"].as_array().into_iter().flatten();
        let on_node =
            interfaces.into_iter().find(|interface| interface["sandbox"].as_str().is_none_or(str::is_empty));
        on_node
            .and_then(|link| link["name"].as_str())
            .expect("the result names the link on the node")
            .to_owned()
    }

    /// A raw socket on `eth0`.
    #[must_use]
    #[track_caller]
    pub fn socket(&self) -> PacketSocket {
        PacketSocket::open(&self.netns, &self.attachment.ifname)
    }

    /// One echo request, one second of patience.
    #[must_use]
    #[track_caller]
    pub fn pings(&self, to: impl Into<IpAddr>) -> bool {
        ping(&self.netns, to.into(), "").status.success()
    }

    /// Echo requests that have to be answered: three, and one of the full size that may not be fragmented.
    ///
    /// # Panics
    /// One is not.
    #[track_caller]
    pub fn assert_pings(&self, to: impl Into<IpAddr>) {
        let to = to.into();
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let full = format!("-M do -s {}", self.mtu() - headers);
        for options in ["-c 3 -i 0.01", &full] {
            let output = ping(&self.netns, to, options);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}: ping {options} {to}: {text}", self.netns.name());
        }
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        if self.attached
            && let Err(error) = self.runtime.del(&self.attachment)
        {
            eprintln!("{}: {error}", self.netns.name());
        }
    }
}

/// Runs `ping -n -W 1 -c 1 OPTIONS TO` (a later option wins).
#[must_use]
#[track_caller]
pub fn ping(netns: &Netns, to: IpAddr, options: &str) -> Output {
    netns.output(&format!("ping -n -c 1 -W 1 {options} {to}"))
}
