package files

import (
	"path"
	"strings"
)

const octetStream = "application/octet-stream"

// mimeType guesses a type from the name as Python's mimetypes does. The table is our own because
// the system's differs between machines, and so would the answers of two hubs.
func mimeType(name string) string {
	ext := path.Ext(name)
	if long, ok := shortExtensions[ext]; ok {
		name = strings.TrimSuffix(name, ext) + long
		ext = path.Ext(name)
	}
	if compressed[ext] {
		ext = path.Ext(strings.TrimSuffix(name, ext))
	}
	if typ, ok := mimeTypes[strings.ToLower(ext)]; ok {
		return typ
	}
	return octetStream
}

// Active reports whether a browser would run a file of a type that is shown under the hub's own
// address, where it could act as the user.
func Active(contentType string) bool {
	switch contentType {
	case "text/html", "application/xhtml+xml", "text/javascript", "text/css":
		return true
	}
	return strings.HasSuffix(contentType, "/xml") || strings.HasSuffix(contentType, "+xml")
}

var shortExtensions = map[string]string{
	".svgz": ".svg.gz", ".tgz": ".tar.gz", ".taz": ".tar.gz", ".tz": ".tar.gz",
	".tbz2": ".tar.bz2", ".txz": ".tar.xz",
}

var compressed = map[string]bool{".gz": true, ".Z": true, ".bz2": true, ".xz": true, ".br": true}

var mimeTypes = map[string]string{
	".aac":   "audio/aac",
	".aif":   "audio/x-aiff",
	".aiff":  "audio/x-aiff",
	".avi":   "video/x-msvideo",
	".avif":  "image/avif",
	".bmp":   "image/bmp",
	".css":   "text/css",
	".csv":   "text/csv",
	".exr":   "image/x-exr",
	".flac":  "audio/x-flac",
	".gif":   "image/gif",
	".glb":   "model/gltf-binary",
	".gltf":  "model/gltf+json",
	".heic":  "image/heic",
	".heif":  "image/heif",
	".htm":   "text/html",
	".html":  "text/html",
	".ico":   "image/vnd.microsoft.icon",
	".jpe":   "image/jpeg",
	".jpeg":  "image/jpeg",
	".jpg":   "image/jpeg",
	".js":    "text/javascript",
	".json":  "application/json",
	".m4a":   "audio/mp4",
	".m4v":   "video/x-m4v",
	".md":    "text/markdown",
	".mjs":   "text/javascript",
	".mkv":   "video/x-matroska",
	".mov":   "video/quicktime",
	".mp2":   "audio/mpeg",
	".mp3":   "audio/mpeg",
	".mp4":   "video/mp4",
	".mpeg":  "video/mpeg",
	".mpg":   "video/mpeg",
	".obj":   "model/obj",
	".oga":   "audio/ogg",
	".ogg":   "audio/ogg",
	".ogv":   "video/ogg",
	".opus":  "audio/opus",
	".pdf":   "application/pdf",
	".png":   "image/png",
	".ppm":   "image/x-portable-pixmap",
	".psd":   "image/vnd.adobe.photoshop",
	".qt":    "video/quicktime",
	".rdf":   "application/xml",
	".rtf":   "application/rtf",
	".srt":   "text/plain",
	".stl":   "model/stl",
	".svg":   "image/svg+xml",
	".tar":   "application/x-tar",
	".tif":   "image/tiff",
	".tiff":  "image/tiff",
	".tsv":   "text/tab-separated-values",
	".txt":   "text/plain",
	".vtt":   "text/vtt",
	".wasm":  "application/wasm",
	".wav":   "audio/x-wav",
	".weba":  "audio/webm",
	".webm":  "video/webm",
	".webp":  "image/webp",
	".wsdl":  "application/xml",
	".xhtml": "application/xhtml+xml",
	".xht":   "application/xhtml+xml",
	".xml":   "text/xml",
	".xpdl":  "application/xml",
	".xsl":   "application/xml",
	".xslt":  "application/xml",
	".yaml":  "application/yaml",
	".yml":   "application/yaml",
	".zip":   "application/zip",
}
