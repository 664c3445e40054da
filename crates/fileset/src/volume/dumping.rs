//! Dumps of a file system that is open.

use penstock_base::FsResult;

use super::{FilesetVolume, Parts};
use crate::{
    dumps::{Made, Making, NewDump},
    uploads,
};

impl Parts {
    /// Makes a dump in the bucket, which is seen once that has all to which it refers, and removes the oldest ones but for
    /// `keep`.
    pub(crate) async fn dump(&self, keep: u64) -> FsResult<Made> {
        if let Err(error) = self.save_pending().await {
            tracing::warn!(%error, "a dump lacks what could not be saved");
        }
        let new = NewDump::now(self.label().await?);
        let (engine, transfer) = (&*self.engine, self.objects.transfer());
        let making = Making::begin(engine, transfer, (&new, &|_| ())).await?;
        if let Err(error) = uploads::sent(self).await {
            making.give_up(engine).await;
            return Err(error);
        }
        making.publish(engine, keep).await
    }
}

impl FilesetVolume {
    /// Makes a dump of all that is saved by now, as it does by itself once a day if the schedule says so.
    pub async fn dump(&self, keep: u64) -> FsResult<Made> {
        self.parts.check()?;
        self.parts.dump(keep).await
    }
}
