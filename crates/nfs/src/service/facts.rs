//! FSSTAT, FSINFO and PATHCONF.

use bytes::Bytes;

use super::{Asked, Service, status};
use crate::{
    limits::{LISTING_MAX, TRANSFER_MAX},
    protocol::{
        nfs3::{Status, post_operation},
        xdr::Encoder,
    },
};

/// What transfers are multiples of, best.
const TRANSFER_UNIT: u32 = 4096;
/// FSF3_LINK: there are hard links.
const LINKS: u32 = 0x01;
/// FSF3_SYMLINK: there are symbolic links.
const SYMLINKS: u32 = 0x02;
/// FSF3_HOMOGENEOUS: PATHCONF tells the same of all files.
const HOMOGENEOUS: u32 = 0x08;
/// FSF3_CANSETTIME: SETATTR sets times.
const SETS_TIMES: u32 = 0x10;

impl Service {
    pub(super) async fn statistics(&self, asked: &Asked, file: &Bytes, out: &mut Encoder) {
        let found = self.find(asked, file).await;
        let (attributes, statistics) = match &found {
            Ok(node) => {
                let statistics = self.volume.statistics(&asked.by, node.inode()).await;
                (Some(&node.attributes), statistics.map_err(Status::from))
            }
            Err(error) => (None, Err(*error)),
        };
        let statistics = status(out, statistics);
        post_operation(out, attributes, self.system);
        if let Some(facts) = statistics {
            let bytes = |blocks: u64| blocks.saturating_mul(facts.block_size.into());
            for number in [
                bytes(facts.blocks),
                bytes(facts.blocks_free),
                bytes(facts.blocks_available),
                facts.files,
                facts.files_free,
                facts.files_free,
            ] {
                out.u64(number);
            }
            // For no time at all is this sure to stay so.
            out.u32(0);
        }
    }

    pub(super) async fn facts(&self, asked: &Asked, file: &Bytes, out: &mut Encoder) {
        if self.found(asked, file, out).await.is_none() {
            return;
        }
        for number in [
            TRANSFER_MAX,
            TRANSFER_MAX,
            TRANSFER_UNIT,
            TRANSFER_MAX,
            TRANSFER_MAX,
            TRANSFER_UNIT,
            LISTING_MAX,
        ] {
            out.u32(number);
        }
        out.u64(self.features.file_size_max);
        let granularity = self.features.time_granularity;
        out.u32(granularity.as_secs() as u32);
        out.u32(granularity.subsec_nanos());
        let links = if self.features.links_max > 1 {
            LINKS
        } else {
            0
        };
        out.u32(links | SYMLINKS | HOMOGENEOUS | SETS_TIMES);
    }

    pub(super) async fn path_facts(&self, asked: &Asked, file: &Bytes, out: &mut Encoder) {
        if self.found(asked, file, out).await.is_none() {
            return;
        }
        out.u32(self.features.links_max);
        out.u32(self.features.name_bytes_max);
        // Long names are refused, only root gives files away, and names differ by case, which is kept.
        for fact in [true, true, false, true] {
            out.bool(fact);
        }
    }
}
