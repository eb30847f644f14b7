module kvasir.test/clients

go 1.22

require github.com/oapi-codegen/runtime v1.9.0
