//! What follows from a [`Sample`]: rates, costs per unit of work, and whether the run counts.
//!
//! A figure that cannot be had (nothing was moved, no time passed, the server does not count) is `None`, never zero: a
//! zero would be drawn, averaged and won with. Every reader of a report uses these methods, so that two of them cannot
//! divide differently.

use crate::record::Sample;

/// Bytes in a GiB, the unit that costs are given for.
pub const GIB: f64 = (1_u64 << 30) as f64;

/// The reason that is given for a run which moved something else than what it must be.
const WRONG_CONTENT: &str = "the content is not what it must be";

impl Sample {
    /// Why the run does not count, if so: it failed, or it moved wrong bytes.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        let wrong = (self.verified == Some(false)).then_some(WRONG_CONTENT);
        self.failure.as_deref().or(wrong)
    }

    /// Payload per second of wall time, in bytes.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        ratio(self.bytes as f64, self.seconds).filter(|_| self.bytes > 0)
    }

    /// Operations per second of wall time.
    #[must_use]
    pub fn operations_per_second(&self) -> Option<f64> {
        ratio(self.operations as f64, self.seconds).filter(|_| self.operations > 0)
    }

    /// Processor seconds of the client for each GiB of payload.
    #[must_use]
    pub fn client_cpu_seconds_per_gib(&self) -> Option<f64> {
        ratio(self.client_cpu_seconds, self.bytes as f64 / GIB)
    }

    /// Processor seconds of the client for each operation.
    #[must_use]
    pub fn client_cpu_seconds_per_operation(&self) -> Option<f64> {
        ratio(self.client_cpu_seconds, self.operations as f64)
    }

    /// Requests of every kind that reached the server; `None` where it does not count.
    #[must_use]
    pub fn request_count(&self) -> Option<f64> {
        let count = self.requests.values().map(|count| *count as f64).sum();
        (!self.requests.is_empty()).then_some(count)
    }

    /// Requests for each operation: requests per file where files are counted.
    #[must_use]
    pub fn requests_per_operation(&self) -> Option<f64> {
        ratio(self.request_count()?, self.operations as f64)
    }

    /// Requests for each GiB of payload.
    #[must_use]
    pub fn requests_per_gib(&self) -> Option<f64> {
        ratio(self.request_count()?, self.bytes as f64 / GIB)
    }

    /// Body bytes that crossed the network, both ways, for each byte of payload: read amplification where a workload reads.
    /// 1 is ideal; less means that a cache answered.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        self.request_count()?;
        let crossed = self.server_sent_bytes as f64 + self.server_received_bytes as f64;
        ratio(crossed, self.bytes as f64)
    }
}

/// The quotient, where it is a number.
fn ratio(dividend: f64, divisor: f64) -> Option<f64> {
    let quotient = dividend / divisor;
    (divisor > 0.0 && quotient.is_finite()).then_some(quotient)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        Sample {
            seconds: 2.0,
            bytes: 4 << 30,
            operations: 8,
            client_cpu_seconds: 1.0,
            requests: [("GetObject".to_owned(), 24), ("HeadObject".to_owned(), 8)].into(),
            server_sent_bytes: 5 << 30,
            server_received_bytes: 1 << 30,
            ..Sample::default()
        }
    }

    #[test]
    fn each_figure_is_the_quotient_that_its_name_says() {
        let sample = sample();
        assert_eq!(sample.bytes_per_second(), Some(2.0 * GIB));
        assert_eq!(sample.operations_per_second(), Some(4.0));
        assert_eq!(sample.client_cpu_seconds_per_gib(), Some(0.25));
        assert_eq!(sample.client_cpu_seconds_per_operation(), Some(0.125));
        assert_eq!(sample.requests_per_operation(), Some(4.0));
        assert_eq!(sample.requests_per_gib(), Some(8.0));
        assert_eq!(sample.amplification(), Some(1.5));
    }

    #[test]
    fn what_cannot_be_divided_is_absent() {
        let nothing = Sample::default();
        assert_eq!(nothing.bytes_per_second(), None);
        assert_eq!(nothing.operations_per_second(), None);
        assert_eq!(nothing.client_cpu_seconds_per_gib(), None);
        assert_eq!(nothing.requests_per_operation(), None);
        assert_eq!(nothing.amplification(), None);
        let frozen = Sample {
            seconds: 0.0,
            ..sample()
        };
        assert_eq!(frozen.bytes_per_second(), None);
        let uncounted = Sample {
            requests: [].into(),
            ..sample()
        };
        assert_eq!(uncounted.amplification(), None);
    }

    #[test]
    fn wrong_content_is_a_fault_like_a_failure() {
        let with = |failure: Option<&str>, verified| Sample {
            failure: failure.map(str::to_owned),
            verified,
            ..sample()
        };
        assert_eq!(with(None, None).fault(), None);
        assert_eq!(with(None, Some(true)).fault(), None);
        assert_eq!(with(None, Some(false)).fault(), Some(WRONG_CONTENT));
        assert_eq!(
            with(Some("timed out"), Some(false)).fault(),
            Some("timed out")
        );
    }
}
