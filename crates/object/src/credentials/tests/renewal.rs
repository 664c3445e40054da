//! What happens when newer credentials cannot be had.

use super::*;

/// A place that has credentials once.
#[derive(Debug)]
struct Once {
    life: Duration,
    looks: AtomicUsize,
}

#[async_trait]
impl Place for Once {
    async fn look(&self) -> Result<Found, Nothing> {
        if self.looks.fetch_add(1, Ordering::Relaxed) > 0 {
            return Err(Nothing::Broken("throttled".to_owned()));
        }
        let expires = clock::wall_time() + self.life;
        Ok(Found {
            credentials: credentials("1", Some(expires)),
            origin: "a mint".to_owned(),
        })
    }
}

#[tokio::test]
async fn old_credentials_are_kept_until_they_expire_when_a_renewal_fails() {
    let mut chain = Chain::new(&CredentialOrigin::default());
    chain.push(
        "once",
        Once {
            life: Duration::from_secs(2),
            looks: AtomicUsize::new(0),
        },
    );
    let source = CredentialSource::new(chain);
    for _ in 0..3 {
        assert_eq!(
            key_id(&source).await,
            "1",
            "they are valid, if not for long"
        );
    }
    clock::sleep(Duration::from_secs(2)).await;
    let error = source.current().await.expect_err("they have expired");
    assert!(error.message.contains("throttled"), "{error}");
}
