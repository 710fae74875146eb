// Storage: what the browser keeps for the page. A browser that keeps nothing is no fault.

export const ofTab = () => sessionStorage;
export const ofBrowser = () => localStorage;

export function recall(place, name, otherwise) {
  try {
    return JSON.parse(place().getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Whether it is kept.
export function keep(place, name, value) {
  try {
    place().setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
