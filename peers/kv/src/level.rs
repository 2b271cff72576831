//! LevelDB through its C API, as Debian ships it.
//!
//! Hand-written declarations of the functions that are used; nothing is built. Unsafe: as in `rocks`.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::ops::ControlFlow;

use assent_bench::BenchError;
use assent_bench::kv::store::{Ability, Each, Member, Setup, Store, Write, failed};

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_options_create() -> *mut c_void;
    fn leveldb_options_destroy(options: *mut c_void);
    fn leveldb_options_set_create_if_missing(options: *mut c_void, on: c_uchar);
    fn leveldb_options_set_compression(options: *mut c_void, kind: c_int);
    fn leveldb_options_set_cache(options: *mut c_void, cache: *mut c_void);
    fn leveldb_options_set_filter_policy(options: *mut c_void, policy: *mut c_void);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut c_void;
    fn leveldb_filterpolicy_destroy(policy: *mut c_void);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut c_void;
    fn leveldb_cache_destroy(cache: *mut c_void);
    fn leveldb_open(options: *const c_void, name: *const c_char, error: *mut *mut c_char) -> *mut c_void;
    fn leveldb_close(db: *mut c_void);
    fn leveldb_writeoptions_create() -> *mut c_void;
    fn leveldb_writeoptions_set_sync(options: *mut c_void, on: c_uchar);
    fn leveldb_writeoptions_destroy(options: *mut c_void);
    fn leveldb_readoptions_create() -> *mut c_void;
    fn leveldb_readoptions_destroy(options: *mut c_void);
    fn leveldb_get(
        db: *mut c_void,
        options: *const c_void,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_writebatch_create() -> *mut c_void;
    fn leveldb_writebatch_destroy(batch: *mut c_void);
    fn leveldb_writebatch_put(
        batch: *mut c_void,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn leveldb_writebatch_delete(batch: *mut c_void, key: *const c_char, key_bytes: usize);
    fn leveldb_write(db: *mut c_void, options: *const c_void, batch: *mut c_void, error: *mut *mut c_char);
    fn leveldb_create_iterator(db: *mut c_void, options: *const c_void) -> *mut c_void;
    fn leveldb_iter_destroy(iterator: *mut c_void);
    fn leveldb_iter_valid(iterator: *const c_void) -> c_uchar;
    fn leveldb_iter_seek(iterator: *mut c_void, key: *const c_char, key_bytes: usize);
    fn leveldb_iter_next(iterator: *mut c_void);
    fn leveldb_iter_key(iterator: *const c_void, bytes: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iterator: *const c_void, bytes: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iterator: *const c_void, error: *mut *mut c_char);
    fn leveldb_free(memory: *mut c_void);
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
}

const FILTER_BITS: c_int = 10;
const NO_COMPRESSION: c_int = 0;

/// The member.
pub(crate) fn member() -> Member {
    // SAFETY: two functions without arguments.
    let version = unsafe { (leveldb_major_version(), leveldb_minor_version()) };
    Member {
        name: "leveldb",
        about: format!(
            "leveldb: LevelDB {}.{} of Debian's libleveldb-dev through its C API, {FILTER_BITS}-bit filters, no compression, write buffer \
             as it ships",
            version.0, version.1
        ),
        lacks: vec![(Ability::SlowDisk, "it opens its files itself")],
        open: |setup| Ok(Box::new(Level::open(setup)?)),
    }
}

struct Level {
    db: *mut c_void,
    cache: *mut c_void,
    filter: *mut c_void,
    options: *mut c_void,
    /// Without sync, and with.
    write: [*mut c_void; 2],
    read: *mut c_void,
}

// SAFETY: LevelDB says that a database may be called from many threads without a lock; the options are only read once made.
unsafe impl Send for Level {}
// SAFETY: as above.
unsafe impl Sync for Level {}

/// What a call left in its error, which is freed.
fn said(what: &str, error: *mut c_char) -> Result<(), BenchError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so a string of the library that ends with a zero and is ours to free.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: allocated by the library, freed once.
    unsafe { leveldb_free(error.cast()) };
    Err(failed(&format!("leveldb: {what}"), text))
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

impl Level {
    fn open(setup: &Setup) -> Result<Self, BenchError> {
        let name =
            CString::new(setup.folder.to_string_lossy().into_owned()).map_err(|error| failed("leveldb", error))?;
        let cache_bytes = usize::try_from(setup.cache_bytes).unwrap_or(usize::MAX);
        // SAFETY: makers without arguments that matter; cache and filter stay ours and outlive the database.
        let (options, cache, filter, write, read) = unsafe {
            let options = leveldb_options_create();
            let (cache, filter) =
                (leveldb_cache_create_lru(cache_bytes), leveldb_filterpolicy_create_bloom(FILTER_BITS));
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_compression(options, NO_COMPRESSION);
            leveldb_options_set_cache(options, cache);
            leveldb_options_set_filter_policy(options, filter);
            let write = [leveldb_writeoptions_create(), leveldb_writeoptions_create()];
            leveldb_writeoptions_set_sync(write[1], 1);
            (options, cache, filter, write, leveldb_readoptions_create())
        };
        let mut error = std::ptr::null_mut();
        // SAFETY: the options live, the name ends with a zero, the error is a place for a pointer.
        let db = unsafe { leveldb_open(options, name.as_ptr(), &raw mut error) };
        let level = Self { db, cache, filter, options, write, read };
        said("opening", error)?;
        Ok(level)
    }
}

impl Store for Level {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let (mut error, mut bytes) = (std::ptr::null_mut(), 0);
        let key_at = key.as_ptr().cast();
        // SAFETY: the database is open, the key is as long as it says.
        let at = unsafe { leveldb_get(self.db, self.read, key_at, key.len(), &raw mut bytes, &raw mut error) };
        said("get", error)?;
        if at.is_null() {
            return Ok(false);
        }
        value.clear();
        // SAFETY: the library's copy of the value, ours until it is freed below.
        value.extend_from_slice(unsafe { seen(at, bytes) });
        // SAFETY: freed once.
        unsafe { leveldb_free(at.cast()) };
        Ok(true)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.get(key, head)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        // SAFETY: a batch of our own, filled with slices as long as they say, which it copies, and destroyed once.
        let error = unsafe {
            let batch = leveldb_writebatch_create();
            for write in writes {
                match *write {
                    Write::Put(key, value) => leveldb_writebatch_put(
                        batch,
                        key.as_ptr().cast(),
                        key.len(),
                        value.as_ptr().cast(),
                        value.len(),
                    ),
                    Write::Delete(key) => leveldb_writebatch_delete(batch, key.as_ptr().cast(), key.len()),
                }
            }
            let mut error = std::ptr::null_mut();
            leveldb_write(self.db, self.write[usize::from(sync)], batch, &raw mut error);
            leveldb_writebatch_destroy(batch);
            error
        };
        said("write", error)
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        // SAFETY: an iterator of our own; key and value are read while it stands on them; destroyed once.
        let error = unsafe {
            let iterator = leveldb_create_iterator(self.db, self.read);
            leveldb_iter_seek(iterator, from.as_ptr().cast(), from.len());
            while leveldb_iter_valid(iterator) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = leveldb_iter_key(iterator, &raw mut key_bytes);
                let key = seen(key, key_bytes);
                if key >= to {
                    break;
                }
                let value = leveldb_iter_value(iterator, &raw mut value_bytes);
                if each(key, seen(value, value_bytes)) == ControlFlow::Break(()) {
                    break;
                }
                leveldb_iter_next(iterator);
            }
            let mut error = std::ptr::null_mut();
            leveldb_iter_get_error(iterator, &raw mut error);
            leveldb_iter_destroy(iterator);
            error
        };
        said("fold", error)
    }

    /// An empty batch with sync: the log is synced with it.
    fn flush(&self) -> Result<(), BenchError> {
        self.write(&[], true)
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        // SAFETY: each was given by the library and is freed once, the database first. It is null where it was not opened.
        unsafe {
            if !self.db.is_null() {
                leveldb_close(self.db);
            }
            leveldb_readoptions_destroy(self.read);
            self.write.into_iter().for_each(|options| leveldb_writeoptions_destroy(options));
            leveldb_options_destroy(self.options);
            leveldb_filterpolicy_destroy(self.filter);
            leveldb_cache_destroy(self.cache);
        }
    }
}
