package job

import (
	"path"
	"strings"
)

// modelExtensions are those of files with the weights of models, not of a user's files.
var modelExtensions = map[string]bool{
	".safetensors": true, ".sft": true, ".ckpt": true, ".pt": true, ".pt2": true, ".pth": true, ".bin": true, ".pkl": true, ".gguf": true, ".onnx": true, ".engine": true,
}

// NamesModel reports whether a file name is a model's, by its extension in whatever case.
func NamesModel(name string) bool { return modelExtensions[strings.ToLower(path.Ext(name))] }
