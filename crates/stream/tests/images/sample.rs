//! Trees to write, and what is to be found in them.

use std::{collections::BTreeMap, path::Path};

use penstock_stream::{
    BlockAddress, BuildParts, BuildProgress, BuildSummary, ErofsSettings, ErofsWriter, ImageWriter,
    ObjectSource, PlacedObjects, Placement, SnapshotError, SnapshotObject, Timestamp, build_index,
};

/// Objects by their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) objects: BTreeMap<Vec<u8>, (u64, Timestamp)>,
}

impl Sample {
    /// Objects whose sizes and times follow from their places in the list.
    pub(crate) fn of_keys<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut sample = Self::default();
        for (number, key) in keys.into_iter().enumerate() {
            let number = number as u64;
            sample.add(key.as_ref(), number * 977 % 20_000);
        }
        sample
    }

    /// Objects without bytes, where names are what matters.
    pub(crate) fn of_names<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut sample = Self::default();
        keys.into_iter().for_each(|key| sample.add(key.as_ref(), 0));
        sample
    }

    pub(crate) fn add(&mut self, key: &[u8], size: u64) {
        let number = self.objects.len() as u32;
        let modified = Timestamp {
            seconds: 1_700_000_000 + i64::from(number) * 17,
            nanoseconds: number * 1_001 % 1_000_000_000,
        };
        self.objects.insert(key.to_vec(), (size, modified));
    }

    /// Writes the image, and says what became of it and where each object lies.
    pub(crate) fn write(&self, path: &Path, settings: ErofsSettings) -> (BuildSummary, Places) {
        let disks = settings.disks;
        let image = ErofsWriter::create(path, settings).expect("a new image");
        self.write_with(Box::new(image), disks)
    }

    pub(crate) fn write_with(
        &self,
        image: Box<dyn ImageWriter + Send>,
        disks: u16,
    ) -> (BuildSummary, Places) {
        let mut places = Places::default();
        let summary = build_index(BuildParts {
            source: &mut Listed {
                objects: self.objects.iter().collect(),
                given: 0,
            },
            placement: Placement::new(disks),
            image,
            objects: &mut places,
            progress: &BuildProgress::default(),
        });
        (summary.expect("built"), places)
    }
}

/// Where objects lie.
#[derive(Debug, Default)]
pub(crate) struct Places(pub(crate) BTreeMap<Vec<u8>, BlockAddress>);

impl PlacedObjects for Places {
    fn add(&mut self, object: &SnapshotObject<'_>, start: BlockAddress) -> std::io::Result<()> {
        self.0.insert(object.key.to_vec(), start);
        Ok(())
    }
}

struct Listed<'a> {
    objects: Vec<(&'a Vec<u8>, &'a (u64, Timestamp))>,
    given: usize,
}

impl ObjectSource for Listed<'_> {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        let object = self.objects.get(self.given);
        self.given += 1;
        Ok(object.map(|(key, (size, modified))| SnapshotObject {
            key,
            size: *size,
            modified: *modified,
            etag: "v1",
            target: "",
        }))
    }
}
