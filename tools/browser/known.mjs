// Troubles that a stock ComfyUI causes in its own web UI, seen with 0.3.64 (web UI 1.27) and 0.33.0 (1.49) without any hub.
// With --reference, those that the reference causes are added.
export const known = [
  /^404 GET \/favicon\.ico$/,
  /^404 GET (\/api\/userdata)?\/user\.css$/, // nobody has written one
  /^404 GET \/api\/userdata\/comfy\.templates\.json$/, // nor saved a template
  /^404 GET \/api\/userdata\?dir=/, // nor saved a workflow or a subgraph
  /^404 GET \/api\/userdata\/workflows%2F\.index\.json$/, // nor marked a workflow
  /^console: ComfyApp graph accessed before initialization/,
  /^exception: Cannot read properties of undefined \(reading 'id'\)/,
  /^console: Attempted to cleanup event listeners for graph that was never set up/, // 1.27, with its old menu
  // The step `fail` provokes these; in any other step, a refused Run fails the step.
  /^400 POST \/api\/prompt$/,
  /^console: PromptExecutionError/,
  /^404 GET \/api\/view\?type=input&filename=undefined/, // a node that loads a picture, while there is none to choose
  // A simulated instance has no templates.
  /^404 GET \/templates\//,
  /^console: Error (fetching|loading core) workflow templates/,
  /^console: Error loading fuse options/, // from the search in the templates
  /net::ERR_NAME_NOT_RESOLVED/, // the page asks other servers, which this browser cannot reach
  // The icon of a tab that works: the page asks for it at the root, wherever it is served. The icon is missing.
  /^404 GET outside \/assets\/images\/favicon_progress_16x16\/frame_\d+\.png$/,
];
