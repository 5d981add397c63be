/** A slider over a list of values, with the present one as text beside it. */
import { element } from '../ladder/dom.js';

/** A slider of the page. */
export interface Slider {
  readonly value: number;
}

/**
 * Prepares the slider with an id.
 * @param values the meaning of its positions
 * @param onChange called with each new value that the reader chooses, and once with the first
 */
export function makeSlider(
  id: string,
  values: readonly number[],
  first: number,
  text: (value: number) => string,
  onChange: (value: number) => void,
): Slider {
  const input = element<HTMLInputElement>(id);
  const output = document.querySelector(`output[for="${id}"]`) as HTMLOutputElement;
  Object.assign(input, { min: '0', max: String(values.length - 1), step: '1' });
  input.value = String(values.indexOf(first));
  const value = () => values[Number(input.value)] as number;
  const show = () => {
    output.textContent = text(value());
    input.setAttribute('aria-valuetext', text(value()));
  };
  input.addEventListener('input', () => {
    show();
    onChange(value());
  });
  show();
  onChange(first);
  return {
    get value() {
      return value();
    },
  };
}
