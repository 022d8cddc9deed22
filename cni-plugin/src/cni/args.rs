//! `CNI_ARGS`: `key=value` pairs between semicolons (section 2).

use agent_api::Pod;

use super::{Error, Kind};

/// What `CNI_ARGS` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// `K8S_POD_NAMESPACE`, `K8S_POD_NAME`, `K8S_POD_UID`.
    pub pod: Pod,
    /// Requests that older runtimes make here: (`IP` or `MAC`, value).
    pub requests: Vec<(String, String)>,
}

impl Args {
    /// Reads the variable's value.
    ///
    /// # Errors
    /// [`Kind::InvalidEnvironment`] for a piece without `=`, and for an unknown key unless `IgnoreUnknown` is set
    /// (the convention of libcni).
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut args = Self::default();
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Error::new(
                    Kind::InvalidEnvironment,
                    format!("CNI_ARGS: {pair:?} is not key=value"),
                ));
            };
            let value = value.to_owned();
            match key {
                "IgnoreUnknown" => {
                    ignore_unknown = matches!(value.as_str(), "1" | "true" | "True" | "TRUE" | "t");
                }
                "K8S_POD_NAMESPACE" => args.pod.namespace = value,
                "K8S_POD_NAME" => args.pod.name = value,
                "K8S_POD_UID" => args.pod.uid = value,
                "K8S_POD_INFRA_CONTAINER_ID" => {} // the container id once more
                "IP" | "MAC" if value.is_empty() => {}
                "IP" | "MAC" => args.requests.push((key.to_owned(), value)),
                _ => unknown.push(key),
            }
        }
        if ignore_unknown || unknown.is_empty() {
            return Ok(args);
        }
        let keys = unknown.join(", ");
        Err(Error::new(
            Kind::InvalidEnvironment,
            format!("CNI_ARGS: unknown keys {keys} without IgnoreUnknown=1"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_kubelet_passes_is_understood() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a=b;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u;X=y";
        let args = Args::parse(text).unwrap();
        assert_eq!(args.pod, Pod { namespace: "default".into(), name: "a=b".into(), uid: "u".into() });
        assert!(args.requests.is_empty());
    }

    #[test]
    fn old_requests_are_kept() {
        let args = Args::parse("IP=10.0.0.1;MAC=").unwrap();
        assert_eq!(args.requests, [("IP".to_owned(), "10.0.0.1".to_owned())]);
    }

    #[test]
    fn unknown_keys_count_unless_told_otherwise() {
        assert_eq!(Args::parse("").unwrap(), Args::default());
        assert_eq!(Args::parse(";;").unwrap(), Args::default());
        assert!(Args::parse("FOO=1;BAR=2").unwrap_err().message.contains("FOO, BAR"));
        assert!(Args::parse("FOO=1;IgnoreUnknown=true").is_ok());
        assert!(Args::parse("FOO=1;IgnoreUnknown=0").is_err());
        assert_eq!(Args::parse("FOO").unwrap_err().kind, Kind::InvalidEnvironment);
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused(text in ".*") {
            let _ = Args::parse(&text);
        }
    }
}
