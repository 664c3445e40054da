//! Objects from a directory: each sub-directory a bucket, each file below it an object.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use super::{content::ContentWriter, data::Data, object::Object};

impl Data {
    /// Reads every file below `directory` into memory: `BUCKET/KEY` becomes an object, an empty
    /// sub-directory an empty bucket. Nothing is ever written back.
    ///
    /// # Errors
    /// The directory cannot be read, or memory is exhausted.
    pub fn load(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let bucket = entry.file_name().to_string_lossy().into_owned();
                self.create_bucket(&bucket);
                self.load_below(&bucket, "", &entry.path())?;
            }
        }
        Ok(())
    }

    fn load_below(&self, bucket: &str, prefix: &str, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.load_below(bucket, &format!("{key}/"), &entry.path())?;
            } else {
                self.load_file(bucket, &key, &entry.path())?;
            }
        }
        Ok(())
    }

    fn load_file(&self, bucket: &str, key: &str, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut writer = ContentWriter::new(self.arena(), Some(metadata.len()));
        loop {
            let count = file.read(writer.room()?)?;
            if count == 0 {
                break;
            }
            writer.advance(count);
        }
        let content = writer.finish();
        let etag = format!("{}-1", self.unique());
        let mut object = Object::new(content, etag);
        object.modified = metadata.modified().unwrap_or(object.modified);
        if let Some(bucket) = self.bucket(bucket) {
            bucket.put(key, object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_objects() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(directory.path().join("b/x/y")).expect("directories");
        fs::create_dir(directory.path().join("empty")).expect("a directory");
        fs::write(directory.path().join("b/x/y/k"), "hello").expect("a file");
        fs::write(directory.path().join("b/none"), "").expect("a file");
        let data = Data::new();
        data.load(directory.path()).expect("readable");
        assert_eq!(data.keys("b"), ["none", "x/y/k"]);
        assert_eq!(data.get("b", "x/y/k").as_deref(), Some(&b"hello"[..]));
        assert_eq!(data.buckets().len(), 2);
    }
}
