/** A keyboard on a screen has no Shift and Enter: there, Enter begins a new line, as everywhere else. */
export const isTouch = matchMedia('(hover: none) and (pointer: coarse)').matches;
