/**
 * Values by names. Names may come from outside, such as those of fields, tools, tiers or salts, so the object has no prototype: it has
 * no value for `constructor`, and its value for `__proto__` is one like others. `scripts/tidy.ts` demands it of each table by name.
 */
export const byName = <Value>(values: { readonly [name: string]: Value } = {}): Record<string, Value> =>
  Object.assign(Object.create(null) as Record<string, Value>, values);

/** The same of entries. `scripts/tidy.ts` demands it, because an object of `Object.fromEntries` has a prototype. */
export const byEntries = <Value>(entries: Iterable<readonly [string | number, Value]>): Record<string, Value> =>
  byName(Object.fromEntries(entries));

/** The own value of an object that may have a prototype, such as one from another process. */
export const ownValue = <Value>(
  values: { readonly [name: string]: Value } | undefined,
  name: string,
): Value | undefined => (values !== undefined && Object.hasOwn(values, name) ? values[name] : undefined);
