//! Amazon S3 and everything that speaks its language.

mod dialect;
mod features;

pub(crate) use dialect::S3;
pub use features::ChecksumChoice;

use crate::{
    http::Origin,
    settings::{SettingsError, StoreSettings},
};

/// The region that stores assume whose region was not told.
const REGION_DEFAULT: &str = "us-east-1";

/// Region and endpoint, each guessed from the other where only one is set.
pub(crate) fn locate(settings: &StoreSettings) -> Result<(Origin, String), SettingsError> {
    let endpoint = match settings.endpoint.as_deref() {
        Some(text) => Some(crate::settings::parse_endpoint(text)?),
        None => None,
    };
    let guessed = endpoint.as_ref().and_then(|origin| region_in(&origin.host));
    let region = settings.region.clone().or(guessed);
    let region = region.unwrap_or_else(|| REGION_DEFAULT.to_owned());
    let origin = match endpoint {
        Some(origin) => origin,
        None => crate::settings::parse_endpoint(&endpoint_of(&region))?,
    };
    Ok((origin, region))
}

fn endpoint_of(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://s3.{region}.amazonaws.com{suffix}")
}

/// `eu-west-1` of `s3.eu-west-1.amazonaws.com`.
fn region_in(host: &str) -> Option<String> {
    let name = host
        .strip_suffix(".amazonaws.com")
        .or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let region = name.strip_prefix("s3.dualstack.").or_else(|| {
        name.strip_prefix("s3.")
            .or_else(|| name.strip_prefix("s3-"))
    })?;
    (!region.is_empty() && !region.contains('.')).then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(endpoint: Option<&str>, region: Option<&str>) -> (String, String) {
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
                None,
                None,
                "https://s3.us-east-1.amazonaws.com",
                "us-east-1",
            ),
            (
                None,
                Some("cn-north-1"),
                "https://s3.cn-north-1.amazonaws.com.cn",
                "cn-north-1",
            ),
            (
                Some("s3.eu-west-1.amazonaws.com"),
                None,
                "https://s3.eu-west-1.amazonaws.com",
                "eu-west-1",
            ),
            (
                Some("http://127.0.0.1:9000"),
                None,
                "http://127.0.0.1:9000",
                "us-east-1",
            ),
            (
                Some("https://s3.amazonaws.com"),
                Some("x"),
                "https://s3.amazonaws.com",
                "x",
            ),
        ] {
            let expected = (origin.to_owned(), found.to_owned());
            assert_eq!(located(endpoint, region), expected);
        }
    }
}
