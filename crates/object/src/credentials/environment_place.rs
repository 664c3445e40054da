//! Credentials that were handed in: outright, or in environment variables.

use async_trait::async_trait;
use penstock_base::Secret;

use super::{
    Credentials, Environment,
    chain::{Nothing, Place},
    origin::Found,
};

/// Credentials that are what they are.
#[derive(Debug)]
pub(super) struct Given(Option<Credentials>);

/// The place of credentials that the settings may hold.
pub(super) fn fixed_or(credentials: &Option<Credentials>) -> Given {
    Given(credentials.clone())
}

#[async_trait]
impl Place for Given {
    async fn look(&self) -> Result<Found, Nothing> {
        Ok(Found {
            credentials: self.0.clone().ok_or_else(Nothing::absent)?,
            origin: "the options that hold them".to_owned(),
        })
    }
}

/// The first triple of variables of which key id and secret are set.
#[derive(Debug)]
pub(super) struct Variables(Result<Option<Found>, String>);

impl Variables {
    pub(super) fn new(environment: &Environment, triples: &[[&str; 3]]) -> Self {
        for [key_id, secret, token] in triples {
            match (environment.get(key_id), environment.get(secret)) {
                (Some(key), Some(value)) => {
                    let credentials = Credentials {
                        key_id: key.to_owned(),
                        secret: Secret::new(value),
                        token: environment.get(token).map(Secret::new),
                        expires: None,
                    };
                    let origin = format!("the environment variables {key_id} and {secret}");
                    return Self(Ok(Some(Found {
                        credentials,
                        origin,
                    })));
                }
                (Some(_), None) => return Self(Err(format!("{key_id} is set, {secret} is not"))),
                (None, Some(_)) => return Self(Err(format!("{secret} is set, {key_id} is not"))),
                (None, None) => {}
            }
        }
        Self(Ok(None))
    }
}

#[async_trait]
impl Place for Variables {
    async fn look(&self) -> Result<Found, Nothing> {
        self.0.clone()?.ok_or_else(Nothing::absent)
    }
}
