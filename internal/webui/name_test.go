package webui

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHashedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"/assets/index-vtow2bzT.js": true, "/assets/manifest-CebUEmtR.json": true, "/assets/rolldown-runtime-G-74P12b.js": true,
		"/assets/a-b-c-_bC-d0fG.woff2": true, "/assets/vendor-vue-core-BZZQdWHo.js": true,
		// Of the build of 1.49 too, but under names of their own.
		"/assets/sorted-custom-node-map.json": false, "/assets/favicon.ico": false, "/assets/CREDIT.txt": false,
		"/assets/images/logo-AbCd1234.svg": false, "/assets/lib/vue-AbCd1234.js": false,
		"/assets/app-settings.js": false, "/assets/app-Settings.js": false, "/assets/a-node-map.js": false, "/assets/my-LoadNode.html": false,
		"/extensions/pack/index-vtow2bzT.js": false, "/index-vtow2bzT.js": false, "/api/assets/index-vtow2bzT.js": false,
		"/assets/x-vtow2bzT.py": false, "/assets/-vtow2bzT.js": false, "/assets/x-vtow2bz.js": false,
	} {
		require.Equal(t, want, IsHashed(name), name)
	}
}

func TestFilesOfTheBuild(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"/assets/index-vtow2bzT.js": true, library: true, "/assets/sorted-custom-node-map.json": true, "/assets/images/logo.svg": true,
		"/assets/lib/primevue/index.mjs": true,
		"/assets/":                       false, "/assets": false, "/assets/lib": false, "/assets/index.html": false, "/assets/run.py": false, "/assets/.js": true,
		"/assets/../secret.js": false, "/assets/lib//vue.js": false, "/assets/./vue.js": false, "/extensions/pack/vue.js": false,
		"/api/assets/lib/vue.js": false, "assets/vue.js": false,
	} {
		require.Equal(t, want, IsFile(name), name)
	}
}
