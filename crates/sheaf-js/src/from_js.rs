//! Converts JavaScript values to BSON.
//!
//! The value is untrusted: reading a field may run a getter, an object may contain itself, and a
//! tagged object may be forged. Depth and size are limited here, time and memory by the runtime,
//! and the content of a tagged object is parsed like any other input.

use rquickjs::object::Filter;
use rquickjs::{Object, Value as JsValue};
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{
    DateTime, Decimal128, DocBuf, DocBuilder, ObjectId, RawDoc, RawValue, Timestamp, Value, base64,
};
use sheaf_query::interrupt::step;

use crate::failure::{Failure, interpreter};
use crate::origin::{Origin, Was};
use crate::world::{World, tag};

/// Maximum nesting of a returned value.
const DEPTH_MAX: usize = 150;
/// Number of nesting levels that the scope of code counts as: it is built separately and copied.
const SCOPE_DEPTH: usize = 10;
/// Maximum size of a returned value in bytes: that of a document, plus the margin that MongoDB
/// leaves for enclosing fields.
const BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

impl<'js> World<'js> {
    /// Converts a value to BSON.
    ///
    /// Errors: 17279 if it is nested too deeply, 10334 if it is too large, 139 if BSON cannot
    /// represent it; an exception of a getter; an interruption.
    pub(crate) fn to_bson(&self, value: &JsValue<'js>) -> Result<Value, Failure> {
        let mut out = DocBuilder::new();
        self.append(&mut out, "v", value, Was::Other, 0)?;
        let out = out.finish();
        Ok(out.get("v").map_or(Value::Undefined, RawValue::to_value))
    }

    fn append(
        &self,
        out: &mut DocBuilder,
        name: &str,
        value: &JsValue<'js>,
        was: Was,
        depth: usize,
    ) -> Result<(), Failure> {
        step()?;
        if name.contains('\0') {
            return Err(interpreter("a field name must not contain a null byte").into());
        }
        check_size(out.current_len() + name.len())?;
        if let Some(number) = value.as_number() {
            match was {
                Was::Int32 if is_int32(number) => out.append(name, number as i32),
                _ => out.append(name, number),
            };
        } else if let Some(text) = value.as_string() {
            let text = string(text)?;
            check_size(out.current_len() + text.len())?;
            match was {
                Was::Symbol => out.append(name, RawValue::Symbol(&text)),
                _ => out.append(name, text.as_str()),
            };
        } else if let Some(truth) = value.as_bool() {
            out.append(name, truth);
        } else if value.is_null() {
            out.append(name, RawValue::Null);
        } else if value.is_undefined() {
            out.append(name, RawValue::Undefined);
        } else if let Some(big) = value.as_big_int() {
            out.append(name, big.clone().to_i64()?);
        } else if let Some(object) = value.as_object() {
            return self.append_object(out, name, object, depth);
        } else {
            let what = value.type_name();
            return Err(interpreter(format!("a {what} cannot be stored in BSON")).into());
        }
        check_size(out.current_len())
    }

    fn append_object(
        &self,
        out: &mut DocBuilder,
        name: &str,
        object: &Object<'js>,
        depth: usize,
    ) -> Result<(), Failure> {
        let tagged: JsValue<'js> = object.get(self.tag.clone())?;
        if let Some(number) = tagged.as_int() {
            return match number {
                tag::CODE => self.append_code(out, name, object, depth),
                tag::BOXED => self.append_boxed(out, name, object, depth),
                _ => self.append_tagged(out, name, object, number),
            };
        }
        if object.is_promise() {
            let what = "a Promise cannot be stored in BSON; functions must not be asynchronous";
            return Err(interpreter(what).into());
        }
        if depth >= DEPTH_MAX {
            return Err(Error::new(
                ErrorCode(17279),
                format!(
                    "Exceeded depth limit of {DEPTH_MAX} when converting js object to BSON. Do you have a cycle?"
                ),
            )
            .into());
        }
        let origin = self.origin(object)?;
        if object.is_array() {
            out.begin_array(name);
            self.append_elements(out, object, &origin, depth + 1)?;
        } else {
            out.begin_document(name);
            self.append_fields(out, object, &origin, depth + 1)?;
        }
        out.end();
        check_size(out.current_len())
    }

    fn origin(&self, object: &Object<'js>) -> Result<Origin, Failure> {
        let text: JsValue<'js> = object.get(self.origin.clone())?;
        Ok(match text.as_string() {
            Some(text) => Origin::parse(&string(text)?),
            None => Origin::default(),
        })
    }

    fn append_elements(
        &self,
        out: &mut DocBuilder,
        array: &Object<'js>,
        origin: &Origin,
        depth: usize,
    ) -> Result<(), Failure> {
        let length: f64 = array.get("length")?;
        for at in 0..length as u64 {
            let key = at.to_string();
            let value: JsValue<'js> = array.get(at as u32)?;
            self.append(out, &key, &value, origin.was(&key), depth)?;
        }
        Ok(())
    }

    fn append_fields(
        &self,
        out: &mut DocBuilder,
        object: &Object<'js>,
        origin: &Origin,
        depth: usize,
    ) -> Result<(), Failure> {
        let keys = object.own_keys::<rquickjs::String<'js>>(Filter::default());
        let mut names = Vec::new();
        for key in keys {
            names.push(string(&key?)?);
        }
        if let Some(order) = &origin.order {
            let place: std::collections::HashMap<&str, usize> =
                order.iter().map(String::as_str).zip(0..).collect();
            names.sort_by_key(|name| place.get(name.as_str()).copied().unwrap_or(usize::MAX));
        }
        for name in &names {
            let value: JsValue<'js> = object.get(name.as_str())?;
            self.append(out, name, &value, origin.was(name), depth)?;
        }
        Ok(())
    }

    /// The text in a tagged object.
    fn content(&self, object: &Object<'js>) -> Result<String, Failure> {
        let content: JsValue<'js> = object.get(self.content.clone())?;
        match content.as_string() {
            Some(text) => string(text),
            None => Err(malformed().into()),
        }
    }

    fn append_tagged(
        &self,
        out: &mut DocBuilder,
        name: &str,
        object: &Object<'js>,
        number: i32,
    ) -> Result<(), Failure> {
        match number {
            tag::OBJECT_ID => {
                let id = ObjectId::parse_hex(&self.content(object)?).ok_or_else(malformed)?;
                out.append(name, RawValue::ObjectId(id));
            }
            tag::LONG => {
                let content: JsValue<'js> = object.get(self.content.clone())?;
                let big = content.as_big_int().cloned().ok_or_else(malformed)?;
                out.append(name, big.to_i64()?);
            }
            tag::INT => {
                let content: JsValue<'js> = object.get(self.content.clone())?;
                let number = content.as_number().filter(|x| is_int32(*x));
                out.append(name, number.ok_or_else(malformed)? as i32);
            }
            tag::DECIMAL => {
                let decimal = decimal(&self.content(object)?).ok_or_else(malformed)?;
                out.append(name, RawValue::Decimal128(decimal));
            }
            tag::BINARY => {
                let content = self.content(object)?;
                let (subtype, bytes) = binary(&content).ok_or_else(malformed)?;
                let bytes = &bytes;
                check_size(out.current_len() + bytes.len())?;
                out.append(name, RawValue::Binary { subtype, bytes });
            }
            tag::TIMESTAMP => {
                let time = timestamp(&self.content(object)?).ok_or_else(malformed)?;
                out.append(name, RawValue::Timestamp(time));
            }
            tag::MIN_KEY => {
                out.append(name, RawValue::MinKey);
            }
            tag::MAX_KEY => {
                out.append(name, RawValue::MaxKey);
            }
            tag::POINTER => {
                let content = self.content(object)?;
                let (id, namespace) = content.split_once('\0').ok_or_else(malformed)?;
                let id = ObjectId::parse_hex(id).ok_or_else(malformed)?;
                out.append(name, RawValue::DbPointer { namespace, id });
            }
            tag::REGEX => {
                let content: String = string(&self.run("pattern", (object.clone(),))?)?;
                let (pattern, options) = content.split_once('\0').ok_or_else(malformed)?;
                if options.contains('\0') {
                    return Err(malformed().into());
                }
                out.append(name, RawValue::Regex { pattern, options });
            }
            tag::DATE => {
                out.append(name, RawValue::DateTime(self.date(object)?));
            }
            tag::FUNCTION if object.is_function() => {
                let text = string(&self.run("textOf", (object.clone(),))?)?;
                out.append(name, RawValue::JavaScript(&text));
            }
            _ => return Err(malformed().into()),
        }
        check_size(out.current_len())
    }

    /// Appends the primitive in a wrapper object, such as `new Number(5)`.
    fn append_boxed(
        &self,
        out: &mut DocBuilder,
        name: &str,
        object: &Object<'js>,
        depth: usize,
    ) -> Result<(), Failure> {
        let inner: JsValue<'js> = self.run("unboxed", (object.clone(),))?;
        match inner.is_object() {
            true => Err(malformed().into()),
            false => self.append(out, name, &inner, Was::Other, depth),
        }
    }

    fn append_code(
        &self,
        out: &mut DocBuilder,
        name: &str,
        object: &Object<'js>,
        depth: usize,
    ) -> Result<(), Failure> {
        let code = self.content(object)?;
        let scope: JsValue<'js> = object.get("scope")?;
        match scope.as_object() {
            Some(variables) if !variables.is_array() && depth < DEPTH_MAX => {
                let mut inner = DocBuilder::new();
                let origin = self.origin(variables)?;
                self.append_fields(&mut inner, variables, &origin, depth + SCOPE_DEPTH)?;
                let inner: DocBuf = inner.finish();
                let scope: RawDoc<'_> = inner.as_raw();
                let code = code.as_str();
                out.append(name, RawValue::JavaScriptWithScope { code, scope });
            }
            Some(_) => return Err(malformed().into()),
            None => {
                out.append(name, RawValue::JavaScript(&code));
            }
        }
        check_size(out.current_len())
    }

    fn date(&self, object: &Object<'js>) -> Result<DateTime, Failure> {
        let millis: JsValue<'js> = self.run("millis", (object.clone(),))?;
        if let Some(large) = millis.as_big_int() {
            return Ok(DateTime(large.clone().to_i64()?));
        }
        match millis.as_number().filter(|ms| ms.is_finite()) {
            Some(ms) => Ok(DateTime(ms as i64)),
            None => Err(interpreter("an invalid Date cannot be stored in BSON").into()),
        }
    }
}

fn malformed() -> Error {
    interpreter("an object of a BSON type was changed and no longer contains a valid value")
}

fn is_int32(number: f64) -> bool {
    number == f64::from(number as i32) && !(number == 0.0 && number.is_sign_negative())
}

/// A string of the engine; lone surrogates become replacement characters.
fn string(text: &rquickjs::String<'_>) -> Result<String, Failure> {
    match text.to_string() {
        Err(rquickjs::Error::Utf8(_)) => {
            let well_formed: rquickjs::Function<'_> = text
                .as_value()
                .ctx()
                .globals()
                .get::<_, Object<'_>>("String")?
                .get::<_, Object<'_>>("prototype")?
                .get("toWellFormed")?;
            let text: rquickjs::String<'_> =
                well_formed.call((rquickjs::function::This(text.clone()),))?;
            Ok(text.to_string()?)
        }
        other => Ok(other?),
    }
}

fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BSON_OBJECT_TOO_LARGE,
        format!("BSONObj size: {bytes} is invalid. Size must be between 0 and 16793600(16MB)"),
    )
    .into())
}

fn decimal(text: &str) -> Option<Decimal128> {
    match text.split_once('#') {
        Some((_, bits)) => {
            let bits = u128::from_str_radix(bits, 16).ok()?;
            Some(Decimal128(bits.to_le_bytes()))
        }
        None => text.parse().ok(),
    }
}

fn binary(text: &str) -> Option<(u8, Vec<u8>)> {
    let (subtype, text) = text.split_once(':')?;
    let (subtype, bytes) = (subtype.parse().ok()?, base64::decode(text)?);
    // Subtype 2 (old binary) begins with the length of the remaining bytes.
    let framed = subtype != 2
        || bytes
            .first_chunk::<4>()
            .is_some_and(|length| u32::from_le_bytes(*length) as usize == bytes.len() - 4);
    framed.then_some((subtype, bytes))
}

fn timestamp(text: &str) -> Option<Timestamp> {
    let (time, increment) = text.split_once(':')?;
    Some(Timestamp::new(time.parse().ok()?, increment.parse().ok()?))
}
