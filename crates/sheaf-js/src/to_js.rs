//! Converts BSON values to JavaScript.

use std::collections::HashSet;

use rquickjs::object::Property;
use rquickjs::{Array, BigInt, Object, Value as JsValue};
use sheaf_bson::{RawArray, RawDoc, RawValue, base64};
use sheaf_query::interrupt::step;

use crate::failure::Failure;
use crate::origin;
use crate::world::World;

/// Maximum number of fields for which repeated names are found by linear search.
const FIELDS_COMPARED_MAX: usize = 16;
/// Maximum distance of a JavaScript date from 1970, in milliseconds.
const DATE_MILLIS_MAX: i64 = 8_640_000_000_000_000;

impl<'js> World<'js> {
    /// Converts a value. Errors: the memory limit is exceeded; the operation was interrupted.
    pub(crate) fn to_js(&self, value: RawValue<'_>) -> Result<JsValue<'js>, Failure> {
        let ctx = self.ctx.clone();
        Ok(match value {
            RawValue::Double(x) => JsValue::new_float(ctx, x),
            RawValue::Int32(n) => JsValue::new_int(ctx, n),
            RawValue::String(text) | RawValue::Symbol(text) => self.text(text)?,
            RawValue::Boolean(truth) => JsValue::new_bool(ctx, truth),
            RawValue::Null => JsValue::new_null(ctx),
            RawValue::Undefined => JsValue::new_undefined(ctx),
            RawValue::Document(doc) => self.object(doc)?.into_value(),
            RawValue::Array(array) => self.array(array)?.into_value(),
            RawValue::Int64(n) => self.run("long", (BigInt::from_i64(ctx, n)?,))?,
            RawValue::ObjectId(id) => self.run("oid", (id.to_hex(),))?,
            RawValue::DateTime(date) if date.0.abs_diff(0) <= DATE_MILLIS_MAX as u64 => {
                self.run("date", (date.0 as f64,))?
            }
            RawValue::DateTime(date) => self.run("largeDate", (BigInt::from_i64(ctx, date.0)?,))?,
            RawValue::Decimal128(decimal) => {
                let bits = u128::from_le_bytes(decimal.0);
                self.run("decimal", (format!("{decimal}#{bits:032x}"),))?
            }
            RawValue::Binary { subtype, bytes } => {
                let mut text = String::new();
                base64::encode(bytes, &mut text);
                self.run("binary", (i32::from(subtype), text))?
            }
            RawValue::Timestamp(t) => {
                self.run("timestamp", (format!("{}:{}", t.time, t.increment),))?
            }
            RawValue::MinKey => self.part("minKey")?,
            RawValue::MaxKey => self.part("maxKey")?,
            RawValue::JavaScript(code) => self.run("code", (code,))?,
            RawValue::JavaScriptWithScope { code, scope } => {
                self.run("code", (code, self.object(scope)?))?
            }
            RawValue::DbPointer { namespace, id } => {
                self.run("pointer", (format!("{}\0{namespace}", id.to_hex()),))?
            }
            RawValue::Regex { pattern, options } => {
                // JavaScript has no option "x", and the pattern may use syntax that only PCRE
                // supports.
                let known: String = options.chars().filter(|c| "imsu".contains(*c)).collect();
                self.run("regex", (pattern, known, format!("{pattern}\0{options}")))?
            }
        })
    }

    /// Converts a document to an ordinary object. If several fields have the same name, the first
    /// one is kept, as in every field lookup.
    pub(crate) fn object(&self, doc: RawDoc<'_>) -> Result<Object<'js>, Failure> {
        let object = Object::new(self.ctx.clone())?;
        let mut seen = Names::default();
        for element in doc.iter() {
            step()?;
            let name = element.key();
            if seen.insert(name) {
                // Defined, not set: a setter of a prototype or `__proto__` has no effect.
                let value = self.to_js(element.value())?;
                let property = Property::from(value).writable().enumerable();
                object.prop(name, property.configurable())?;
            }
        }
        self.note_origin(&object, doc, false)?;
        Ok(object)
    }

    /// Converts an array.
    pub(crate) fn array(&self, array: RawArray<'_>) -> Result<Object<'js>, Failure> {
        let out = Array::new(self.ctx.clone())?.into_object();
        for (at, value) in array.iter().enumerate() {
            step()?;
            let property = Property::from(self.to_js(value)?).writable().enumerable();
            out.prop(at as u32, property.configurable())?;
        }
        self.note_origin(&out, array.as_doc(), true)?;
        Ok(out)
    }

    fn note_origin(
        &self,
        object: &Object<'js>,
        doc: RawDoc<'_>,
        array: bool,
    ) -> Result<(), Failure> {
        if let Some(text) = origin::describe(doc, array) {
            let text = self.text(&text)?;
            object.prop(self.origin.clone(), Property::from(text).configurable())?;
        }
        Ok(())
    }
}

/// The names of a document so far.
#[derive(Default)]
struct Names<'d> {
    few: Vec<&'d str>,
    many: HashSet<&'d str>,
}

impl<'d> Names<'d> {
    /// Adds a name; `false` if it was already present.
    fn insert(&mut self, name: &'d str) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(name);
        }
        if self.few.contains(&name) {
            return false;
        }
        self.few.push(name);
        if self.few.len() > FIELDS_COMPARED_MAX {
            self.many = self.few.drain(..).collect();
        }
        true
    }
}
