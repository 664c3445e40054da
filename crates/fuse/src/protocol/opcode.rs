//! What a request can ask for.

macro_rules! opcodes {
    ($($name:ident = $number:literal, $label:literal;)*) => {
        /// What a request can ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        #[repr(u32)]
        pub enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The opcode of a number, if it is one that is known here.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The opcode's name in metrics and logs.
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    GetAttributes = 3, "getattr";
    SetAttributes = 4, "setattr";
    ReadSymlink = 5, "readlink";
    MakeSymlink = 6, "symlink";
    MakeNode = 8, "mknod";
    MakeDirectory = 9, "mkdir";
    Unlink = 10, "unlink";
    RemoveDirectory = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statistics = 17, "statfs";
    Release = 18, "release";
    Sync = 20, "fsync";
    SetXattr = 21, "setxattr";
    GetXattr = 22, "getxattr";
    ListXattr = 23, "listxattr";
    RemoveXattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    OpenDirectory = 27, "opendir";
    ReadDirectory = 28, "readdir";
    ReleaseDirectory = 29, "releasedir";
    SyncDirectory = 30, "fsyncdir";
    GetLock = 31, "getlk";
    SetLock = 32, "setlk";
    SetLockWait = 33, "setlkw";
    Access = 34, "access";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    BlockMap = 37, "bmap";
    Destroy = 38, "destroy";
    Control = 39, "ioctl";
    Poll = 40, "poll";
    NotifyReply = 41, "notify_reply";
    BatchForget = 42, "batch_forget";
    Allocate = 43, "fallocate";
    ReadDirectoryPlus = 44, "readdirplus";
    RenameWithFlags = 45, "rename2";
    Seek = 46, "lseek";
    CopyRange = 47, "copy_file_range";
    SyncVolume = 50, "syncfs";
    TemporaryFile = 51, "tmpfile";
    ExtendedAttributes = 52, "statx";
    CopyRange64 = 53, "copy_file_range_64";
}
