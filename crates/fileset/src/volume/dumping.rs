//! Dumps of a file system that is open.

use penstock_base::FsResult;

use super::{FilesetVolume, Parts};
use crate::{
    dumps::{self, Made, Making, NewDump},
    uploads,
};

impl Parts {
    /// Writes a dump, which nobody sees before it is published. The bucket has all to which it refers.
    pub(crate) async fn write_dump(&self, new: &NewDump) -> FsResult<Making> {
        if let Err(error) = self.save_pending().await {
            tracing::warn!(%error, "a dump lacks what could not be saved");
        }
        let (engine, transfer) = (&*self.engine, self.objects.transfer());
        let making = Making::begin(engine, transfer, (new, &|_| ())).await?;
        if let Err(error) = uploads::sent(self).await {
            dumps::give_up(engine, &new.name).await;
            return Err(error);
        }
        Ok(making)
    }

    /// Removes all dumps but the newest `keep`. Returns the names of those that were there.
    pub(crate) async fn remove_older_dumps(&self, keep: u64) -> FsResult<Vec<String>> {
        let store = self.objects.transfer().store();
        dumps::remove_older(&*self.engine, &**store, keep).await
    }
}

impl FilesetVolume {
    /// Makes a dump in the bucket of all that is saved by now, and removes all but the newest `keep`, of which it returns the
    /// names.
    pub async fn dump(&self, keep: u64) -> FsResult<(Made, Vec<String>)> {
        self.parts.check()?;
        let new = NewDump::now(self.parts.label().await?);
        let making = self.parts.write_dump(&new).await?;
        let made = making.publish(&*self.parts.engine).await?;
        Ok((made, self.parts.remove_older_dumps(keep).await?))
    }
}
