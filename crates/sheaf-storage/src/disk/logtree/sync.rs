//! Synchronisation primitives of the lock-free parts: the standard library's atomics and
//! `parking_lot`'s locks, or, under `--cfg explore`, those of the model checker that explores every
//! interleaving.

#[cfg(not(explore))]
mod found {
    pub(in crate::disk::logtree) use parking_lot::{Condvar, Mutex, RwLock};
    pub(in crate::disk::logtree) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

#[cfg(explore)]
mod found {
    pub(in crate::disk::logtree) use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };

    use std::ops::{Deref, DerefMut};

    /// loom's mutex with the interface of `parking_lot`, which has no poisoning.
    #[derive(Default)]
    pub(in crate::disk::logtree) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only while its owner waits on a condition.
    pub(in crate::disk::logtree) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(in crate::disk::logtree) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(in crate::disk::logtree) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().ok())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("held")
        }
    }

    pub(in crate::disk::logtree) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(in crate::disk::logtree) fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub(in crate::disk::logtree) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("held");
            guard.0 = self.0.wait(held).ok();
        }

        pub(in crate::disk::logtree) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(in crate::disk::logtree) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T: Default> Default for RwLock<T> {
        fn default() -> Self {
            RwLock(loom::sync::RwLock::new(T::default()))
        }
    }

    impl<T> RwLock<T> {
        pub(in crate::disk::logtree) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("no thread panics")
        }

        pub(in crate::disk::logtree) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("no thread panics")
        }
    }
}

pub(super) use self::found::*;
