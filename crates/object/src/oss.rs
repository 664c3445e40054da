//! Alibaba Cloud OSS in its own dialect, which can append and link, and tells the CRC of every
//! object.

mod append;
mod dialect;
mod symlink;

pub(crate) use dialect::Oss;

use crate::{
    http::Origin,
    settings::{SettingsError, SignatureChoice, StoreSettings},
};

/// The endpoint, and the region that signatures of version 4 are for; without one they are of
/// version 1.
pub(crate) fn locate(settings: &StoreSettings) -> Result<(Origin, Option<String>), SettingsError> {
    let region = settings.region.as_deref().map(bare_region);
    let endpoint = match (settings.endpoint.as_deref(), region) {
        (Some(text), _) => crate::settings::parse_endpoint(text)?,
        (None, Some(region)) => {
            crate::settings::parse_endpoint(&format!("https://oss-{region}.aliyuncs.com"))?
        }
        (None, None) => return Err(SettingsError::NoOssEndpoint),
    };
    let region = region
        .map(str::to_owned)
        .or_else(|| region_in(&endpoint.host));
    match (settings.signature, region) {
        (SignatureChoice::V1, _) => Ok((endpoint, None)),
        (SignatureChoice::V4, None) => Err(SettingsError::NoRegion),
        (_, region) => Ok((endpoint, region)),
    }
}

/// Regions are often written as in the endpoint.
fn bare_region(region: &str) -> &str {
    region.strip_prefix("oss-").unwrap_or(region)
}

/// `cn-hangzhou` of `oss-cn-hangzhou-internal.aliyuncs.com`.
fn region_in(host: &str) -> Option<String> {
    let name = host.strip_suffix(".aliyuncs.com")?;
    let region = name.strip_prefix("oss-")?;
    let region = region.strip_suffix("-internal").unwrap_or(region);
    let known = region.contains('-') && !region.starts_with("accelerate");
    known.then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(endpoint: Option<&str>, region: Option<&str>) -> (String, Option<String>) {
        let settings = StoreSettings {
            endpoint: endpoint.map(str::to_owned),
            region: region.map(str::to_owned),
            ..StoreSettings::default()
        };
        let (origin, region) = locate(&settings).expect("valid");
        (origin.to_string(), region)
    }

    #[test]
    fn guesses_region_and_endpoint_from_each_other() {
        for (endpoint, region, origin, found) in [
            (
                Some("oss-cn-hangzhou-internal.aliyuncs.com"),
                None,
                "https://oss-cn-hangzhou-internal.aliyuncs.com",
                Some("cn-hangzhou"),
            ),
            (
                None,
                Some("oss-cn-beijing"),
                "https://oss-cn-beijing.aliyuncs.com",
                Some("cn-beijing"),
            ),
            (
                Some("https://oss-accelerate.aliyuncs.com"),
                None,
                "https://oss-accelerate.aliyuncs.com",
                None,
            ),
            (Some("http://127.0.0.1:80"), None, "http://127.0.0.1", None),
        ] {
            let expected = (origin.to_owned(), found.map(str::to_owned));
            assert_eq!(located(endpoint, region), expected);
        }
    }

    #[test]
    fn the_version_of_signatures_can_be_chosen() {
        let with = |signature, region: Option<&str>| {
            let settings = StoreSettings {
                endpoint: Some("http://127.0.0.1:80".to_owned()),
                region: region.map(str::to_owned),
                signature,
                ..StoreSettings::default()
            };
            locate(&settings).map(|(_, region)| region)
        };
        assert_eq!(with(SignatureChoice::V1, Some("cn-x")), Ok(None));
        assert_eq!(
            with(SignatureChoice::V4, None),
            Err(SettingsError::NoRegion)
        );
        let known = Some("cn-x".to_owned());
        assert_eq!(with(SignatureChoice::V4, Some("cn-x")), Ok(known));
    }

    #[test]
    fn needs_one_of_them() {
        assert!(locate(&StoreSettings::default()).is_err());
    }
}
