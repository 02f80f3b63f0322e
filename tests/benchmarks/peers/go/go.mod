module peers

go 1.24.0

require (
	buf.build/go/hyperpb v0.1.3
	google.golang.org/protobuf v1.36.9
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.10.0 // indirect
	github.com/timandy/routine v1.1.5 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
