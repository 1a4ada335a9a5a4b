import js from "@eslint/js";

export default [
  { ignores: ["**/bundles/", "build/", "**/.*/**", "!.javascript/**"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off", // tsc checks names, and has the types of the browser
      eqeqeq: "error",
      "no-shadow-restricted-names": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "off", // long texts are joined from several lines
    },
  },
];
