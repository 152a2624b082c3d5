//! Access to a context and to the helper functions that `prelude.js` returns.

use rquickjs::function::IntoArgs;
use rquickjs::{Ctx, FromJs, Function, Object, Symbol, Value as JsValue};

use crate::failure::Failure;

/// Types of tagged objects, as `prelude.js` numbers them.
pub(crate) mod tag {
    pub(crate) const OBJECT_ID: i32 = 1;
    pub(crate) const LONG: i32 = 2;
    pub(crate) const INT: i32 = 3;
    pub(crate) const DECIMAL: i32 = 4;
    pub(crate) const BINARY: i32 = 5;
    pub(crate) const TIMESTAMP: i32 = 6;
    pub(crate) const MIN_KEY: i32 = 7;
    pub(crate) const MAX_KEY: i32 = 8;
    pub(crate) const CODE: i32 = 9;
    pub(crate) const POINTER: i32 = 10;
    pub(crate) const REGEX: i32 = 11;
    pub(crate) const DATE: i32 = 12;
    pub(crate) const FUNCTION: i32 = 13;
    pub(crate) const BOXED: i32 = 14;
}

/// A context, and references to objects that the engine uses in it.
pub(crate) struct World<'js> {
    pub(crate) ctx: Ctx<'js>,
    inner: Object<'js>,
    pub(crate) tag: Symbol<'js>,
    pub(crate) content: Symbol<'js>,
    pub(crate) origin: Symbol<'js>,
}

impl<'js> World<'js> {
    /// The world of a context; `inner` is the object that the prelude returned.
    pub(crate) fn new(ctx: &Ctx<'js>, inner: Object<'js>) -> Result<World<'js>, Failure> {
        Ok(World {
            ctx: ctx.clone(),
            tag: inner.get("tag")?,
            content: inner.get("content")?,
            origin: inner.get("origin")?,
            inner,
        })
    }

    /// A value that the prelude provides.
    pub(crate) fn part<T: FromJs<'js>>(&self, name: &str) -> Result<T, Failure> {
        Ok(self.inner.get(name)?)
    }

    /// Calls a function that the prelude provides.
    pub(crate) fn run<T: FromJs<'js>>(
        &self,
        name: &str,
        args: impl IntoArgs<'js>,
    ) -> Result<T, Failure> {
        let function: Function<'js> = self.inner.get(name)?;
        Ok(function.call(args)?)
    }

    /// A script's text as a value.
    pub(crate) fn text(&self, text: &str) -> Result<JsValue<'js>, Failure> {
        Ok(rquickjs::String::from_str(self.ctx.clone(), text)?.into_value())
    }
}
