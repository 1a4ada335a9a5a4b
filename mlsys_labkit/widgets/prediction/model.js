export const letter = (index) => "abcdefghijklmnopqrstuvwxyz"[index];
export const right = (choice, answer) => choice === answer;
