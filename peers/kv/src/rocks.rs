//! RocksDB through its C API, as Debian ships it: once plain, once with values in blob files (BlobDB).
//!
//! Hand-written declarations of the functions that are used; nothing is built. Unsafe: every call crosses into C. What each relies on: the
//! pointers were given by the library and not freed (they live in [`Rocks`], which frees them once, after the last call), lengths are those of
//! the slices beside them, and the library's own promise that these functions may be called from many threads.

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::ops::ControlFlow;

use assent_bench::BenchError;
use assent_bench::kv::store::{Ability, Each, Member, Setup, Store, Write, failed};

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> *mut c_void;
    fn rocksdb_options_destroy(options: *mut c_void);
    fn rocksdb_options_set_create_if_missing(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_increase_parallelism(options: *mut c_void, threads: c_int);
    fn rocksdb_options_set_compression(options: *mut c_void, kind: c_int);
    fn rocksdb_options_set_enable_blob_files(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_min_blob_size(options: *mut c_void, bytes: u64);
    fn rocksdb_options_set_enable_blob_gc(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_blob_gc_age_cutoff(options: *mut c_void, share: c_double);
    fn rocksdb_options_set_blob_cache(options: *mut c_void, cache: *mut c_void);
    fn rocksdb_options_set_block_based_table_factory(options: *mut c_void, table: *mut c_void);
    fn rocksdb_block_based_options_create() -> *mut c_void;
    fn rocksdb_block_based_options_destroy(table: *mut c_void);
    fn rocksdb_block_based_options_set_block_cache(table: *mut c_void, cache: *mut c_void);
    fn rocksdb_block_based_options_set_filter_policy(table: *mut c_void, policy: *mut c_void);
    fn rocksdb_filterpolicy_create_bloom_full(bits: c_double) -> *mut c_void;
    fn rocksdb_cache_create_lru(bytes: usize) -> *mut c_void;
    fn rocksdb_cache_destroy(cache: *mut c_void);
    fn rocksdb_open(options: *const c_void, name: *const c_char, error: *mut *mut c_char) -> *mut c_void;
    fn rocksdb_close(db: *mut c_void);
    fn rocksdb_writeoptions_create() -> *mut c_void;
    fn rocksdb_writeoptions_set_sync(options: *mut c_void, on: c_uchar);
    fn rocksdb_writeoptions_destroy(options: *mut c_void);
    fn rocksdb_readoptions_create() -> *mut c_void;
    fn rocksdb_readoptions_destroy(options: *mut c_void);
    fn rocksdb_get_pinned(
        db: *mut c_void,
        options: *const c_void,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut c_void;
    fn rocksdb_pinnableslice_value(slice: *const c_void, bytes: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: *mut c_void);
    fn rocksdb_writebatch_create() -> *mut c_void;
    fn rocksdb_writebatch_destroy(batch: *mut c_void);
    fn rocksdb_writebatch_put(
        batch: *mut c_void,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn rocksdb_writebatch_delete(batch: *mut c_void, key: *const c_char, key_bytes: usize);
    fn rocksdb_write(db: *mut c_void, options: *const c_void, batch: *mut c_void, error: *mut *mut c_char);
    fn rocksdb_flush_wal(db: *mut c_void, sync: c_uchar, error: *mut *mut c_char);
    fn rocksdb_create_iterator(db: *mut c_void, options: *const c_void) -> *mut c_void;
    fn rocksdb_iter_destroy(iterator: *mut c_void);
    fn rocksdb_iter_valid(iterator: *const c_void) -> c_uchar;
    fn rocksdb_iter_seek(iterator: *mut c_void, key: *const c_char, key_bytes: usize);
    fn rocksdb_iter_next(iterator: *mut c_void);
    fn rocksdb_iter_key(iterator: *const c_void, bytes: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: *const c_void, bytes: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iterator: *const c_void, error: *mut *mut c_char);
    fn rocksdb_free(memory: *mut c_void);
}

/// Its own default for values that leave the tree is 0; smaller ones than this would cost more than they save.
const BLOB_BYTES_MIN: u64 = 512;
/// Of the field: about one false positive in a hundred.
const FILTER_BITS: c_double = 10.0;
/// Background threads; the machine's cores share them with the clients.
const THREADS: c_int = 2;
const NO_COMPRESSION: c_int = 0;

/// The two members.
pub(crate) fn members() -> [Member; 2] {
    let about = |name: &str, more: &str| {
        format!(
            "{name}: RocksDB of Debian's librocksdb-dev through its C API, 10-bit filters, no compression, write buffer as it \
             ships{more}"
        )
    };
    let lacks = vec![(Ability::SlowDisk, "it opens its files itself")];
    [
        Member {
            name: "rocksdb",
            about: about("rocksdb", ""),
            lacks: lacks.clone(),
            open: |setup| Ok(Box::new(Rocks::open(setup, false)?)),
        },
        Member {
            name: "rocksdb-blob",
            about: about(
                "rocksdb-blob",
                ", values from 512 bytes in blob files, whose garbage is collected (age cutoff 0.25), one cache for blocks and blobs",
            ),
            lacks,
            open: |setup| Ok(Box::new(Rocks::open(setup, true)?)),
        },
    ]
}

struct Rocks {
    db: *mut c_void,
    cache: *mut c_void,
    options: *mut c_void,
    /// Without sync, and with.
    write: [*mut c_void; 2],
    read: *mut c_void,
}

// SAFETY: the C API says of these objects that any thread may call them without a lock; the options are only read once made.
unsafe impl Send for Rocks {}
// SAFETY: as above.
unsafe impl Sync for Rocks {}

/// What a call left in its error, which is freed.
fn said(what: &str, error: *mut c_char) -> Result<(), BenchError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so a string of the library that ends with a zero and is ours to free.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: allocated by the library, freed once.
    unsafe { rocksdb_free(error.cast()) };
    Err(failed(&format!("rocksdb: {what}"), text))
}

/// Bytes that the library owns.
///
/// # Safety
/// `bytes` readable bytes at `at`, or null with 0 bytes, until the answer is no longer used.
unsafe fn seen<'s>(at: *const c_char, bytes: usize) -> &'s [u8] {
    if at.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(at.cast(), bytes) }
}

impl Rocks {
    fn open(setup: &Setup, blobs: bool) -> Result<Self, BenchError> {
        let name =
            CString::new(setup.folder.to_string_lossy().into_owned()).map_err(|error| failed("rocksdb", error))?;
        let cache_bytes = usize::try_from(setup.cache_bytes).unwrap_or(usize::MAX);
        // SAFETY: makers without arguments that matter; every pointer is used below as the library's header has it, the policy belongs to the
        // table's options from then on, and the options copy the table's.
        let (options, cache, write, read) = unsafe {
            let (options, table) = (rocksdb_options_create(), rocksdb_block_based_options_create());
            let cache = rocksdb_cache_create_lru(cache_bytes);
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_increase_parallelism(options, THREADS);
            rocksdb_options_set_compression(options, NO_COMPRESSION);
            if blobs {
                rocksdb_options_set_enable_blob_files(options, 1);
                rocksdb_options_set_min_blob_size(options, BLOB_BYTES_MIN);
                rocksdb_options_set_enable_blob_gc(options, 1);
                rocksdb_options_set_blob_gc_age_cutoff(options, 0.25);
                // The one cache that blocks have, too: it shares what it holds with us, as with the table's options.
                rocksdb_options_set_blob_cache(options, cache);
            }
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(FILTER_BITS));
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_block_based_options_destroy(table);
            let write = [rocksdb_writeoptions_create(), rocksdb_writeoptions_create()];
            rocksdb_writeoptions_set_sync(write[1], 1);
            (options, cache, write, rocksdb_readoptions_create())
        };
        let mut error = std::ptr::null_mut();
        // SAFETY: the options live, the name ends with a zero, the error is a place for a pointer.
        let db = unsafe { rocksdb_open(options, name.as_ptr(), &raw mut error) };
        let rocks = Self { db, cache, options, write, read };
        said("opening", error)?;
        Ok(rocks)
    }

    /// The value of a key as the library holds it.
    fn pinned<T>(&self, key: &[u8], take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, BenchError> {
        let mut error = std::ptr::null_mut();
        // SAFETY: the database is open, the key is as long as it says.
        let slice = unsafe { rocksdb_get_pinned(self.db, self.read, key.as_ptr().cast(), key.len(), &raw mut error) };
        said("get", error)?;
        if slice.is_null() {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: a slice that the library has just given and that is destroyed below.
        let at = unsafe { rocksdb_pinnableslice_value(slice, &raw mut bytes) };
        // SAFETY: pinned until the slice is destroyed.
        let taken = take(unsafe { seen(at, bytes) });
        // SAFETY: destroyed once.
        unsafe { rocksdb_pinnableslice_destroy(slice) };
        Ok(Some(taken))
    }
}

impl Store for Rocks {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.pinned(key, |bytes| {
            value.clear();
            value.extend_from_slice(bytes);
        })?;
        Ok(found.is_some())
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.get(key, head)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        // SAFETY: a batch of our own, filled with slices as long as they say, which it copies, and destroyed once.
        let error = unsafe {
            let batch = rocksdb_writebatch_create();
            for write in writes {
                match *write {
                    Write::Put(key, value) => rocksdb_writebatch_put(
                        batch,
                        key.as_ptr().cast(),
                        key.len(),
                        value.as_ptr().cast(),
                        value.len(),
                    ),
                    Write::Delete(key) => rocksdb_writebatch_delete(batch, key.as_ptr().cast(), key.len()),
                }
            }
            let mut error = std::ptr::null_mut();
            rocksdb_write(self.db, self.write[usize::from(sync)], batch, &raw mut error);
            rocksdb_writebatch_destroy(batch);
            error
        };
        said("write", error)
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        // SAFETY: an iterator of our own; key and value are read while it stands on them; destroyed once.
        let error = unsafe {
            let iterator = rocksdb_create_iterator(self.db, self.read);
            rocksdb_iter_seek(iterator, from.as_ptr().cast(), from.len());
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = rocksdb_iter_key(iterator, &raw mut key_bytes);
                let key = seen(key, key_bytes);
                if key >= to {
                    break;
                }
                let value = rocksdb_iter_value(iterator, &raw mut value_bytes);
                if each(key, seen(value, value_bytes)) == ControlFlow::Break(()) {
                    break;
                }
                rocksdb_iter_next(iterator);
            }
            let mut error = std::ptr::null_mut();
            rocksdb_iter_get_error(iterator, &raw mut error);
            rocksdb_iter_destroy(iterator);
            error
        };
        said("fold", error)
    }

    fn flush(&self) -> Result<(), BenchError> {
        let mut error = std::ptr::null_mut();
        // SAFETY: the database is open.
        unsafe { rocksdb_flush_wal(self.db, 1, &raw mut error) };
        said("flush", error)
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: each was given by the library and is freed once, the database first. It is null where it was not opened.
        unsafe {
            if !self.db.is_null() {
                rocksdb_close(self.db);
            }
            rocksdb_readoptions_destroy(self.read);
            self.write.into_iter().for_each(|options| rocksdb_writeoptions_destroy(options));
            rocksdb_options_destroy(self.options);
            rocksdb_cache_destroy(self.cache);
        }
    }
}
