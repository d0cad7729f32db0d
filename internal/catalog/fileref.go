package catalog

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// parseFileRef parses a name as a node input contains it.
func parseFileRef(name string) job.FileRef { return job.ParseFileRef(name, job.TypeInput) }

func annotated(name string) bool {
	_, typ := job.SplitAnnotation(name)
	return typ != ""
}

// plausibleFile reports whether a string can be the name of a file, so that the
// texts of prompts are not looked up as files.
func plausibleFile(s string) bool {
	return s != "" && len(s) <= 1024 && !strings.ContainsAny(s, "\n\r\x00") &&
		(annotated(s) || looksLikeFile(pyjson.String(s)))
}

// uploadFlags are the options of inputs whose widget uploads a file.
var uploadFlags = []string{"image_upload", "video_upload", "audio_upload", "file_upload"}

// fileKinds are types whose values are files that the frontend creates.
var fileKinds = map[string]bool{
	"WEBCAM": true, "AUDIO_RECORD": true,
	"LOAD_3D": true, "LOAD_3D_ANIMATION": true,
}

// plainFileInputs are ComfyUI's own file inputs without a flag.
var plainFileInputs = map[[2]string]bool{
	{"LoadLatent", "latent"}:         true,
	{"LoadImageSetNode", "images"}:   true,
	{"GeminiInputFiles", "file"}:     true,
	{"OpenAIInputFiles", "file"}:     true,
	{"VHS_LoadVideo", "video"}:       true,
	{"VHS_LoadAudioUpload", "audio"}: true,
}

// fileInput reports whether an input is known to name files, whatever an instance
// says of its class.
func fileInput(className, name string) bool {
	at := [2]string{className, name}
	return plainFileInputs[at] || existenceChecks[at] != ""
}

// folderInputs are ComfyUI's own inputs that name a folder in the input folder, all
// files of which are read.
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

// existenceChecks are ComfyUI's classes whose validate function looks for the file,
// with the start of their message if it is missing.
var existenceChecks = map[[2]string]string{
	{"LoadImage", "image"}:       "Invalid image file: ",
	{"LoadImageMask", "image"}:   "Invalid image file: ",
	{"LoadImageOutput", "image"}: "Invalid image file: ",
	{"LoadAudio", "audio"}:       "Invalid audio file: ",
	{"LoadVideo", "file"}:        "Invalid video file: ",
	{"LoadLatent", "latent"}:     "Invalid latent file: ",
}
