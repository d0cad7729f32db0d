package catalog

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// FileRef names a file in one of an instance's three folders.
type FileRef struct {
	// Type is "input", "output" or "temp".
	Type string
	// Subfolder is the path below that folder, with slashes; "" for none.
	Subfolder string
	Filename  string
}

// annotations are the endings of a name that choose the folder. ComfyUI cuts
// a fixed count of characters, which includes the blank before the bracket.
var annotations = []struct {
	text, folder string
	cut          int
}{
	{"[output]", "output", 9},
	{"[input]", "input", 8},
	{"[temp]", "temp", 7},
}

// ParseFileRef reads a name as a node input holds it: "a.png",
// "sub/a.png [output]". Without an annotation the folder is the input folder.
// Backslashes separate folders too: to a Windows instance they do.
func ParseFileRef(name string) FileRef {
	ref := FileRef{Type: "input"}
	for _, a := range annotations {
		if strings.HasSuffix(name, a.text) {
			ref.Type = a.folder
			name = name[:max(len(name)-a.cut, 0)]
			break
		}
	}
	name = strings.ReplaceAll(name, `\`, "/")
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		ref.Subfolder, name = name[:slash], name[slash+1:]
		if ref.Subfolder == "" {
			ref.Subfolder = "/" // an absolute name stays one
		}
	}
	ref.Filename = name
	return ref
}

// String writes the reference as a node input holds it.
func (r FileRef) String() string {
	name := r.Filename
	if r.Subfolder != "" {
		name = strings.TrimSuffix(r.Subfolder, "/") + "/" + name
	}
	if r.Type != "input" {
		name += " [" + r.Type + "]"
	}
	return name
}

// Local reports whether the file lies inside its folder: the name is not
// absolute, has no drive letter and no ".." step. Older ComfyUI servers follow
// such names anywhere on their disk.
func (r FileRef) Local() bool {
	if r.Filename == "" || strings.ContainsRune(r.Filename+r.Subfolder, 0) || strings.ContainsRune(r.Subfolder+r.Filename, ':') {
		return false
	}
	if strings.HasPrefix(r.Subfolder, "/") {
		return false
	}
	for step := range strings.SplitSeq(r.Subfolder+"/"+r.Filename, "/") {
		if step == ".." {
			return false
		}
	}
	return r.Filename != "."
}

func annotated(name string) bool {
	for _, a := range annotations {
		if strings.HasSuffix(name, a.text) {
			return true
		}
	}
	return false
}

// plausibleFile reports whether a string can be the name of a file, so that
// prompts' texts are not looked up as such.
func plausibleFile(s string) bool {
	return s != "" && len(s) <= 1024 && !strings.ContainsAny(s, "\n\r\x00") &&
		(annotated(s) || looksLikeFile(pyjson.String(s)))
}

// uploadFlags are the options of inputs whose widget uploads a file.
var uploadFlags = []string{"image_upload", "video_upload", "audio_upload", "file_upload"}

// fileKinds are types whose values are files that the frontend makes.
var fileKinds = map[string]bool{
	"WEBCAM": true, "AUDIO_RECORD": true,
	"LOAD_3D": true, "LOAD_3D_ANIMATION": true,
}

// plainFileInputs are ComfyUI's own file inputs that carry no flag.
var plainFileInputs = map[[2]string]bool{
	{"LoadLatent", "latent"}:         true,
	{"LoadImageSetNode", "images"}:   true,
	{"GeminiInputFiles", "file"}:     true,
	{"OpenAIInputFiles", "file"}:     true,
	{"VHS_LoadVideo", "video"}:       true,
	{"VHS_LoadAudioUpload", "audio"}: true,
}

// fileInput reports whether an input is known to name files whatever an
// instance says of its class.
func fileInput(className, name string) bool {
	at := [2]string{className, name}
	return plainFileInputs[at] || existenceChecks[at] != ""
}

// folderInputs are ComfyUI's own inputs that name a folder among the inputs, of
// which all files are read.
var folderInputs = map[[2]string]bool{
	{"LoadImageSetFromFolderNode", "folder"}:     true,
	{"LoadImageTextSetFromFolderNode", "folder"}: true,
	{"LoadImageDataSetFromFolder", "folder"}:     true,
	{"LoadImageTextDataSetFromFolder", "folder"}: true,
	{"LoadVideoDataSetFromFolder", "folder"}:     true,
	{"LoadVideoTextDataSetFromFolder", "folder"}: true,
}

// namesFile reports whether an input's strings name files on the instance.
func namesFile(className string, in *input) bool {
	if fileKinds[in.kind] || plainFileInputs[[2]string{className, in.name}] {
		return true
	}
	return slices.ContainsFunc(uploadFlags, in.flag)
}

// existenceChecks are ComfyUI's classes whose validate function looks for the
// file, with the start of what they say when it is not there.
var existenceChecks = map[[2]string]string{
	{"LoadImage", "image"}:       "Invalid image file: ",
	{"LoadImageMask", "image"}:   "Invalid image file: ",
	{"LoadImageOutput", "image"}: "Invalid image file: ",
	{"LoadAudio", "audio"}:       "Invalid audio file: ",
	{"LoadVideo", "file"}:        "Invalid video file: ",
	{"LoadLatent", "latent"}:     "Invalid latent file: ",
}
