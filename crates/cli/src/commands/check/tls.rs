//! The trial of TLS: what was agreed, whose certificate that is, and who vouches for it.

use std::time::{Duration, SystemTime};

use penstock_base::clock;
use penstock_object::{CertificateFacts, ObjectError, TlsReport, TrustedBy};

use super::{Finding, Verdict};
use crate::{
    environment::Environment,
    legible::legible,
    options::{Origin, Values, table},
    stores, text_table,
};

const WHAT: &str = "tls";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate that holds no longer than this should be renewed.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// One row; none where nothing is enciphered.
pub(super) async fn trial(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Option<Finding> {
    match stores::report_tls(source, values, environment).await {
        Ok(Ok(report)) => {
            let report = report?;
            let trust = match report.trusted_by {
                TrustedBy::CaFile => ca_file(values),
                TrustedBy::System => system(environment),
            };
            Some(finding(&report, &trust, clock::wall_time()))
        }
        Ok(Err(error)) => {
            let detail = stores::unopened(source, &error).to_string();
            Some(Finding::new(WHAT, verdict(&error), detail))
        }
        Err(failure) => Some(Finding::of(WHAT, Err(failure))),
    }
}

/// What may be otherwise the next time, as a connection that broke or an answer that did not come, is no verdict on TLS.
fn verdict(error: &ObjectError) -> Verdict {
    match error.kind.is_transient() {
        true => Verdict::Untried,
        false => Verdict::Bad,
    }
}

fn ca_file(values: &Values) -> String {
    let named = match values.origin(&table::CA_FILE) {
        Some(Origin::Variable(name)) => name,
        _ => table::CA_FILE.name,
    };
    let path = values.path(&table::CA_FILE).unwrap_or("".as_ref());
    format!("{named} {}", path.display())
}

/// The variables that say what the system trusts are those of OpenSSL.
fn system(environment: &Environment) -> String {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter();
    let named = named.filter_map(|name| Some(format!("{name} {}", environment.variable(name)?)));
    let named = named.collect::<Vec<_>>().join(" and ");
    match named.is_empty() {
        true => "what the system trusts".to_owned(),
        false => named,
    }
}

fn finding(report: &TlsReport, trust: &str, now: SystemTime) -> Finding {
    let TlsReport {
        protocol,
        cipher,
        certificate,
        ..
    } = report;
    let CertificateFacts {
        subject,
        issuer,
        valid_until,
    } = certificate;
    let (verdict, until) = match valid_until {
        None => (Verdict::Good, String::new()),
        Some(time) => {
            let shown = text_table::timestamp(*time);
            let left = time.duration_since(now).unwrap_or_default();
            match left < EXPIRES_SOON {
                false => (Verdict::Good, format!(", valid until {shown}")),
                true => {
                    let days = left.as_secs() / DAY.as_secs();
                    let plural = if days == 1 { "" } else { "s" };
                    let soon =
                        format!(", valid for {days} more day{plural}, until {shown}: renew it");
                    (Verdict::Fair, soon)
                }
            }
        }
    };
    let detail = format!(
        "{protocol}, {cipher}; the certificate of {}, signed by {}{until}; trusted by {trust}",
        legible(subject),
        legible(issuer),
    );
    Finding::new(WHAT, verdict, detail)
}

#[cfg(test)]
mod tests {
    use penstock_object::{ErrorKind, Operation};

    use super::*;

    #[test]
    fn a_connection_that_broke_is_no_verdict() {
        for (kind, expected) in [
            (ErrorKind::Unavailable, Verdict::Untried),
            (ErrorKind::Untrusted, Verdict::Bad),
            (ErrorKind::ClientUntrusted, Verdict::Bad),
        ] {
            let error = ObjectError::new(kind, Operation::List, "no TLS");
            assert_eq!(verdict(&error), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_certificate_that_expires_soon_is_warned_of() {
        let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
        let told = |left: Duration| {
            let report = TlsReport {
                protocol: "TLS 1.3".to_owned(),
                cipher: "TLS13_AES_128_GCM_SHA256".to_owned(),
                certificate: CertificateFacts {
                    subject: "CN=store\u{1b}[2J".to_owned(),
                    issuer: "CN=Corp".to_owned(),
                    valid_until: Some(now + left),
                },
                trusted_by: TrustedBy::System,
            };
            finding(&report, "what the system trusts", now)
        };
        let good = told(EXPIRES_SOON);
        assert_eq!(good.verdict, Verdict::Good);
        assert_eq!(
            good.detail,
            "TLS 1.3, TLS13_AES_128_GCM_SHA256; the certificate of CN=store\\u{1b}[2J, signed by CN=Corp, \
             valid until 2024-10-18T00:00:00Z; trusted by what the system trusts"
        );
        let soon = told(EXPIRES_SOON - Duration::from_secs(1));
        assert_eq!(soon.verdict, Verdict::Fair);
        assert!(soon.detail.contains("13 more days"), "{}", soon.detail);
    }
}
