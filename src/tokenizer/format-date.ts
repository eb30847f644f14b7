const months = 'January February March April May June July August September October November December'.split(' ');
const days = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');

/** Python's `strftime`, in local time, in English on every machine. Unknown directives are not replaced. */
export function formatDate(date: Date, format: string): string {
  return format.replace(/%(-?)([A-Za-z%])/g, (directive: string, dash: string, letter: string) => {
    const field = directives[letter];
    if (field === undefined) return directive;
    const text = field(date);
    return dash === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}

const padded = (value: number, length = 2): string => String(value).padStart(length, '0');
const month = (date: Date): string => months[date.getMonth()] ?? '';
const day = (date: Date): string => days[date.getDay()] ?? '';

const directives: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => padded(date.getFullYear(), 4),
  y: (date) => padded(date.getFullYear() % 100),
  m: (date) => padded(date.getMonth() + 1),
  B: month,
  b: (date) => month(date).slice(0, 3),
  d: (date) => padded(date.getDate()),
  e: (date) => String(date.getDate()).padStart(2, ' '),
  A: day,
  a: (date) => day(date).slice(0, 3),
  H: (date) => padded(date.getHours()),
  I: (date) => padded(date.getHours() % 12 || 12),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  M: (date) => padded(date.getMinutes()),
  S: (date) => padded(date.getSeconds()),
  '%': () => '%',
};
