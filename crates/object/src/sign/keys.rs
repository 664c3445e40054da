//! Signing keys change once a day; deriving one costs five HMACs.

use std::time::SystemTime;

use penstock_base::Mutex;

use super::{SigningKey, basic_date};

/// The signing key that was used last.
#[derive(Default)]
pub(crate) struct SigningKeys(Mutex<Option<Cached>>);

#[derive(PartialEq, Eq)]
struct Cached {
    date: String,
    secret: String,
    key: SigningKey,
}

impl SigningKeys {
    /// The key for `secret` on the day of `time`, derived by `derive` from secret and date when
    /// it is not the one that was used last.
    pub(crate) fn get(
        &self,
        secret: &str,
        time: SystemTime,
        derive: impl FnOnce(&str, &str) -> SigningKey,
    ) -> SigningKey {
        let date = basic_date(time);
        let mut cached = self.0.lock();
        if let Some(known) = &*cached
            && known.date == date
            && known.secret == secret
        {
            return known.key;
        }
        let key = derive(secret, &date);
        let secret = secret.to_owned();
        *cached = Some(Cached { date, secret, key });
        key
    }
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKeys(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;

    #[test]
    fn derives_anew_for_another_day_or_secret() {
        let (keys, derived) = (SigningKeys::default(), Cell::new(0));
        let day = Duration::from_secs(86_400);
        let get = |secret, time| {
            keys.get(secret, time, |_, _| {
                derived.set(derived.get() + 1);
                [derived.get(); 32]
            })[0]
        };
        let noon = SystemTime::UNIX_EPOCH + day / 2;
        assert_eq!([get("a", noon), get("a", noon)], [1, 1]);
        assert_eq!([get("a", noon + day), get("b", noon + day)], [2, 3]);
    }
}
