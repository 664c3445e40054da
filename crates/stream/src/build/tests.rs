use super::*;
use crate::{ErofsSettings, ErofsWriter, Timestamp};

/// Objects from a list.
struct Listed<'a> {
    keys: &'a [&'a str],
    given: usize,
}

impl ObjectSource for Listed<'_> {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        let Some(key) = self.keys.get(self.given) else {
            return Ok(None);
        };
        self.given += 1;
        Ok(Some(SnapshotObject {
            key: key.as_bytes(),
            size: 5000,
            modified: Timestamp::default(),
            etag: "v1",
            target: "",
        }))
    }
}

#[derive(Default)]
struct Places(Vec<(String, BlockAddress)>);

impl PlacedObjects for Places {
    fn add(&mut self, object: &SnapshotObject<'_>, start: BlockAddress) -> io::Result<()> {
        let key = String::from_utf8_lossy(object.key).into_owned();
        self.0.push((key, start));
        Ok(())
    }
}

fn build(keys: &[&str], progress: &BuildProgress) -> (Result<BuildSummary, BuildError>, Places) {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = ErofsSettings {
        disks: 2,
        ..ErofsSettings::default()
    };
    let image = ErofsWriter::create(&folder.path().join("image"), settings).expect("a writer");
    let mut objects = Places::default();
    let result = build_index(BuildParts {
        source: &mut Listed { keys, given: 0 },
        placement: Placement::new(2),
        image: Box::new(image),
        objects: &mut objects,
        progress,
    });
    (result, objects)
}

#[test]
fn each_object_that_a_file_can_show_has_a_place() {
    let progress = BuildProgress::default();
    let (summary, places) = build(&["a", "a/", "a/../x", "a/b", "c"], &progress);
    let summary = summary.expect("built");
    let place = |disk, block| BlockAddress { disk, block };
    let expected = [("a", place(0, 0)), ("a/b", place(1, 0)), ("c", place(0, 2))];
    assert_eq!(
        places.0,
        expected.map(|(key, start)| (key.to_owned(), start))
    );
    assert_eq!((summary.objects, summary.bytes), (5, 25_000));
    assert_eq!((summary.image.files, summary.image.directories), (2, 2));
    assert_eq!(summary.hidden.total(), 2);
    assert_eq!(summary.disk_blocks, [4, 2]);
    assert_eq!((progress.objects(), progress.bytes()), (5, 25_000));
}

#[test]
fn the_digest_tells_listings_apart() {
    let digest = |keys: &[&str]| {
        build(keys, &BuildProgress::default())
            .0
            .expect("built")
            .listing
    };
    assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
    assert_ne!(digest(&["a", "b"]), digest(&["a"]));
    assert_ne!(digest(&["a", "b"]), digest(&["a", "bb"]));
    assert_eq!(digest(&[]).to_string().len(), 64);
}

#[test]
fn keys_out_of_order_are_refused() {
    for keys in [["b", "a"], ["a", "a"]] {
        let error = build(&keys, &BuildProgress::default())
            .0
            .expect_err("refused");
        assert!(matches!(
            error,
            BuildError::Source(SnapshotError::Invalid(_))
        ));
        assert!(error.to_string().contains("not in byte order"), "{error}");
    }
}

#[test]
fn a_cancelled_build_ends() {
    let progress = BuildProgress::default();
    progress.cancel();
    let error = build(&["a"], &progress).0.expect_err("cancelled");
    assert!(matches!(error, BuildError::Cancelled));
}
